"""Random configurations of other gateways: how they are drawn and compared, and what is meant to differ."""
