//! A response that ends its connection.

/// Marks a response after which the connection must not carry another exchange.
#[derive(Debug, Clone, Copy)]
pub struct Close;
