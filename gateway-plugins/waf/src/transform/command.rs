//! Command lines of shells, without what shells skip.

pub(super) fn normalize(input: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    for byte in input {
        match byte {
            b'\\' | b'"' | b'\'' | b'^' => {}
            b' ' | b',' | b';' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c => {
                if out.last() != Some(&b' ') || out.len() == start {
                    out.push(b' ');
                }
            }
            b'/' | b'(' => {
                if out.len() > start && out.last() == Some(&b' ') {
                    out.pop();
                }
                out.push(*byte);
            }
            byte => out.push(byte.to_ascii_lowercase()),
        }
    }
}
