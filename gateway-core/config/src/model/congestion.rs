//! Congestion controls of the kernel.

/// The name of a congestion control that the kernel may have, such as `bbr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Congestion([u8; 16]);

impl Congestion {
    /// A name of at most 15 letters, digits, `_` and `-`, as the kernel's are.
    pub fn new(name: &str) -> Option<Self> {
        let is_name = (1..16).contains(&name.len())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'));
        let mut bytes = [0; 16];
        bytes.get_mut(..name.len()).filter(|_| is_name)?.copy_from_slice(name.as_bytes());
        Some(Self(bytes))
    }

    /// The name.
    pub fn name(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}
