//! The real file system, through std and, for what std lacks, rustix.

use std::fs;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FlockOperation;

use super::{File, Files, LockError, LockGuard};

/// The most slices that one system call takes (`IOV_MAX` of Linux and macOS).
const MAX_SLICES: usize = 1024;

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemFiles;

#[derive(Debug)]
struct SystemFile {
    file: fs::File,
}

/// Holds the lock for as long as its file is open: flock belongs to the open file, so it refuses
/// a second holder in the same process too, and the system lets go of it when the process dies.
#[derive(Debug)]
struct SystemLock {
    file: fs::File,
}

impl LockGuard for SystemLock {}

impl SystemLock {
    fn take(path: &Path) -> Result<Self, LockError> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(LockError::Io)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = fs::read_to_string(path).map_err(LockError::Io)?;
                let (holder, path) = (holder.trim_end().to_owned(), path.to_owned());
                return Err(LockError::Held { holder, path });
            }
            Err(error) => return Err(LockError::Io(error.into())),
        }
        // From here on it is let go of where a step fails.
        let lock = Self { file };
        lock.file.set_len(0).map_err(LockError::Io)?;
        writeln!(&lock.file, "pid={}", std::process::id()).map_err(LockError::Io)?;
        Ok(lock)
    }
}

impl Drop for SystemLock {
    /// Unlocks before it closes: a process that another thread starts at this moment has the open
    /// file too, until it runs its own program, and would hold the lock for so long.
    fn drop(&mut self) {
        // Where that fails, closing lets go of it.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Files for SystemFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let made: Vec<&Path> = path.ancestors().skip(1).take_while(|p| is_missing(p)).collect();
        fs::create_dir_all(path)?;
        // Also where the directory was there: who made it may have died before it was durable.
        std::iter::once(path).chain(made).try_for_each(|made| self.sync_directory(parent(made)))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // A name that is no text is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(SystemFile { file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(SystemFile { file }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(directory)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn total_bytes(&self, directory: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(directory)?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        Ok(Box::new(SystemLock::take(path)?))
    }
}

impl File for SystemFile {
    fn write_at(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        write_all(position, slices, |position, slices| {
            Ok(rustix::io::pwritev(&self.file, slices, position)?)
        })
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], position + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn link_count(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.nlink())
    }

    fn drop_cache(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }
}

/// Calls `write` until all is written: a call takes at most [`MAX_SLICES`] and may stop short.
fn write_all(
    mut position: u64,
    slices: &[IoSlice<'_>],
    mut write: impl FnMut(u64, &[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut rest = slices;
    let mut skip = 0;
    loop {
        while let Some(first) = rest.first().filter(|first| skip >= first.len()) {
            skip -= first.len();
            rest = &rest[1..];
        }
        let Some(first) = rest.first() else { return Ok(()) };
        // A slice that was written in part is finished alone, so that no list is built anew.
        let written = if skip > 0 {
            write(position, &[IoSlice::new(&first[skip..])])
        } else {
            write(position, &rest[..rest.len().min(MAX_SLICES)])
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                skip += count;
                position += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_missing(path: &Path) -> bool {
    !path.as_os_str().is_empty() && !path.exists()
}

/// The directory that holds a name; that of a bare name is the working directory.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory of its own, removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("tidelog-io-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            SystemFiles.create_directory(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("the directory is ours");
        }
    }

    #[test]
    fn a_lock_that_was_let_go_is_free_although_a_new_process_still_has_its_file() {
        let scratch = Scratch::new();
        let path = scratch.0.join("LOCK");
        let lock = SystemLock::take(&path).unwrap();
        // What a process that is started has of this one until it runs its own program.
        let _inherited = lock.file.try_clone().unwrap();
        assert!(SystemFiles.lock(&path).is_err(), "it is held");
        drop(lock);
        assert!(SystemFiles.lock(&path).is_ok(), "it was let go");
    }

    #[test]
    fn more_slices_than_a_call_takes_are_written_in_order_and_read_back() {
        let scratch = Scratch::new();
        let file = SystemFiles.create(&scratch.0.join("many")).unwrap();
        let bytes: Vec<[u8; 3]> = (0..2500u32).map(|n| [n as u8, (n >> 8) as u8, 7]).collect();
        let slices: Vec<IoSlice<'_>> = bytes.iter().map(|b| IoSlice::new(b)).collect();
        file.write_at(5, &slices).unwrap();
        file.sync_data().unwrap();
        file.drop_cache().unwrap();
        let mut found = vec![0xff; 8000];
        assert_eq!(file.read_at(0, &mut found).unwrap(), 7505);
        assert_eq!(found[..5], [0; 5]);
        assert_eq!(found[5..7505], bytes.concat());
        file.set_length(9).unwrap();
        assert_eq!(file.length().unwrap(), 9);
    }

    #[test]
    fn writes_that_stop_short_anywhere_go_on_where_they_stopped() {
        let parts: [&[u8]; 5] = [b"ab", b"", b"cdefg", b"h", b""];
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        for most in 1..=9 {
            let mut found = Vec::new();
            let mut interrupted = false;
            write_all(100, &slices, |position, slices| {
                assert_eq!(position, 100 + found.len() as u64);
                interrupted = !interrupted;
                if interrupted {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                let count = all.len().min(most);
                found.extend_from_slice(&all[..count]);
                Ok(count)
            })
            .unwrap();
            assert_eq!(found, b"abcdefgh");
        }
        let refused = write_all(0, &slices, |_, _| Ok(0)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn a_taken_name_is_not_created_and_a_missing_one_not_opened() {
        let scratch = Scratch::new();
        let path = scratch.0.join("deep/er/file");
        SystemFiles.create_directory(path.parent().unwrap()).unwrap();
        assert_eq!(SystemFiles.open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        SystemFiles.create(&path).unwrap();
        assert_eq!(SystemFiles.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let other = path.with_file_name("other");
        SystemFiles.rename(&path, &other).unwrap();
        assert_eq!(SystemFiles.list(path.parent().unwrap()).unwrap(), ["other"]);
        SystemFiles.remove(&other).unwrap();
        SystemFiles.sync_directory(path.parent().unwrap()).unwrap();
        assert!(SystemFiles.list(path.parent().unwrap()).unwrap().is_empty());
        let free_bytes = SystemFiles.free_bytes(&scratch.0).unwrap();
        assert!(free_bytes > 0);
        assert!(SystemFiles.total_bytes(&scratch.0).unwrap() >= free_bytes);
    }

    #[test]
    fn a_file_has_as_many_links_as_names() {
        let scratch = Scratch::new();
        let (path, other) = (scratch.0.join("file"), scratch.0.join("other"));
        let file = SystemFiles.create(&path).unwrap();
        assert_eq!(file.link_count().unwrap(), 1);
        fs::hard_link(&path, &other).unwrap();
        assert_eq!(file.link_count().unwrap(), 2);
        SystemFiles.remove(&path).unwrap();
        assert_eq!(file.link_count().unwrap(), 1);
        SystemFiles.remove(&other).unwrap();
        assert_eq!(file.link_count().unwrap(), 0);
    }

    #[test]
    fn a_second_lock_in_the_same_process_is_refused_and_names_the_holder() {
        let scratch = Scratch::new();
        let path = scratch.0.join("LOCK");
        let held = SystemFiles.lock(&path).unwrap();
        let refused = SystemFiles.lock(&path).unwrap_err();
        let LockError::Held { holder, path: at } = refused else { panic!("{refused:?}") };
        assert_eq!((holder, at), (format!("pid={}", std::process::id()), path.clone()));
        drop(held);
        SystemFiles.lock(&path).unwrap();
    }
}
