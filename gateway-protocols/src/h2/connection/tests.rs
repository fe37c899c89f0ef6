//! Connections as dialogues of frames.
