//! The id of the cluster of one: made at random with the folder of the data, and kept in it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};

/// The file with the id.
const FILE: &str = "cluster-id";
/// The digits of an id, six bits each: those of Base64 for addresses, as Kafka's.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The length of an id: 128 bits.
const LENGTH: usize = 22;

/// The id that this folder has; from now on, if it had none. The folder must be this process's.
///
/// # Errors
/// What the system says, and [`ErrorKind::InvalidData`] where the file holds no id.
pub fn of(folder: &Path) -> io::Result<String> {
    let path = folder.join(FILE);
    let in_file =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match fs::read_to_string(&path) {
        Ok(text) => checked(text.trim_end()).map_err(in_file),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let id = random()?;
            store(folder, &id).map_err(in_file)?;
            Ok(id)
        }
        Err(error) => Err(in_file(error)),
    }
}

fn checked(text: &str) -> io::Result<String> {
    if text.len() == LENGTH && text.bytes().all(|byte| DIGITS.contains(&byte)) {
        return Ok(text.to_owned());
    }
    Err(io::Error::new(ErrorKind::InvalidData, "there is no cluster id in it"))
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gave no random bytes"))?;
    let bits = u128::from_be_bytes(bytes);
    // 22 digits have four bits more than there are: zeros, at the end.
    let digit = |at: usize| {
        let shift = 6 * (LENGTH - 1 - at);
        let sixth = if at == LENGTH - 1 { bits << 4 } else { bits >> (shift - 4) };
        char::from(DIGITS[(sixth & 63) as usize])
    };
    Ok((0..LENGTH).map(digit).collect())
}

/// Writes the id so that a power loss leaves all of it or nothing.
fn store(folder: &Path, id: &str) -> io::Result<()> {
    let (new, path) = (folder.join("cluster-id.new"), folder.join(FILE));
    let mut file = File::create(&new)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_folder_keeps_its_id_and_another_has_another() {
        let root = std::env::temp_dir().join(format!("tidelog-cluster-id-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let folder = |name: &str| {
            let folder = root.join(name);
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let (one, other) = (folder("one"), folder("other"));
        let id = of(&one).unwrap();
        assert_eq!((id.len(), &of(&one).unwrap()), (LENGTH, &id));
        assert_ne!(of(&other).unwrap(), id);
        for wrong in ["", "short", "AAAAAAAAAAAAAAAAAAAAA/", "AAAAAAAAAAAAAAAAAAAAAAA"] {
            fs::write(one.join(FILE), wrong).unwrap();
            assert_eq!(of(&one).unwrap_err().kind(), ErrorKind::InvalidData, "{wrong}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn an_id_is_128_bits_in_kafkas_digits() {
        let ids: HashSet<String> = (0..100).map(|_| random().unwrap()).collect();
        assert_eq!(ids.len(), 100);
        for id in ids {
            assert!(checked(&id).is_ok(), "{id}");
            assert!(id.ends_with(['A', 'Q', 'g', 'w']), "the last has two bits: {id}");
        }
    }
}
