//! The bytes that subjects serve and that answers are compared with.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::{Body, Row, SiteFile, Table};
use crate::backend::answer;
use crate::text_files::{FileError, write_file};

const LINE: usize = 76;

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot write {path}: {source}")]
    Binary { path: String, source: std::io::Error },
    #[error("{name}: {source}")]
    Wat { name: String, source: wat::Error },
}

/// The content of a file of the site: random bytes in base64, as lines, the same each time.
#[must_use]
pub fn file(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(0x0001_4007 ^ bytes as u64);
    let raw: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
    let mut out = Vec::with_capacity(bytes + LINE);
    for line in STANDARD.encode(raw).as_bytes().chunks(LINE) {
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.truncate(bytes);
    out
}

/// Writes the site, and the scripts of a table.
///
/// # Errors
/// A file that cannot be written, or a module that is none.
pub fn write(table: &Table, site: &Path, scripts: &Path) -> Result<(), ContentError> {
    for SiteFile { path, bytes } in &table.files {
        write_file(&site.join(path), &String::from_utf8_lossy(&file(*bytes)))?;
    }
    for (name, text) in &table.scripts {
        let path = scripts.join(name);
        write_file(&path, text)?;
        if name.ends_with(".wat") {
            let module =
                wat::parse_str(text).map_err(|source| ContentError::Wat { name: name.clone(), source })?;
            let path = path.with_extension("wasm");
            fs::write(&path, module).map_err(|source| ContentError::Binary {
                path: path.to_string_lossy().into_owned(),
                source,
            })?;
        }
    }
    Ok(())
}

/// The body of a row's answers, before any coding; nothing where any will do.
#[must_use]
pub fn expected(table: &Table, row: &Row) -> Option<Bytes> {
    Some(match &row.answer.body {
        Body::File(path) => {
            file(table.files.iter().find(|file| file.path == *path).map_or(0, |file| file.bytes)).into()
        }
        Body::Size(size) => answer::sized(*size).into(),
        Body::Json(size) => answer::json(*size).into(),
        Body::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        Body::Echo => Bytes::copy_from_slice(row.send.as_deref().unwrap_or_default().as_bytes()),
        Body::Any => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Seed;

    #[test]
    fn files_have_their_size_and_are_text() {
        for size in [0, 1, 155, 1_386, 289_812] {
            let file = file(size);
            assert!(file.len() == size && file.is_ascii());
        }
    }

    #[test]
    fn scripts_and_sites_of_all_tables_can_be_written() {
        let directory = std::env::temp_dir().join(format!("proto_bench-content-{:08x}", fastrand::u32(..)));
        for seed in Seed::ALL {
            let table = seed.table().expect("a table");
            write(&table, &directory.join("site"), &directory).unwrap_or_else(|error| panic!("{error}"));
            for row in &table.rows {
                let any = matches!(row.answer.body, Body::Any);
                assert_eq!(expected(&table, row).is_none(), any, "{}", row.id);
            }
        }
        fs::remove_dir_all(&directory).ok();
    }
}
