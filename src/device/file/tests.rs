//! Tests of the file device on real files; the submodules need more of the machine.

mod disks;

use std::path::PathBuf;

use super::*;
use crate::device::AlignedBuf;

const CAPACITY: u64 = 4 << 20;

struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn create(&self, options: &FileOptions) -> FileDevice {
        FileDevice::create(&self.path("store"), CAPACITY, options).unwrap()
    }

    fn open(&self, options: &FileOptions) -> Result<FileDevice> {
        FileDevice::open(&self.path("store"), options)
    }
}

fn options() -> FileOptions {
    FileOptions::default()
}

fn read_only() -> FileOptions {
    FileOptions {
        read_only: true,
        ..options()
    }
}

fn all_ways() -> Vec<FileOptions> {
    let flags = [false, true];
    let ways = flags.iter().flat_map(|&direct_io| {
        flags.map(|io_uring| FileOptions {
            read_only: false,
            direct_io,
            io_uring,
        })
    });
    ways.collect()
}

/// A generator good enough for offsets and fillings.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695);
        (self.0 >> 33) % bound
    }
}

fn filled(byte: u8, len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.fill(byte);
    buf
}

fn write(device: &FileDevice, offset: u64, byte: u8, len: usize) -> io::Result<()> {
    let data = filled(byte, len);
    device.write_many(&[WriteOp {
        offset,
        data: &data,
    }])
}

fn read(device: &FileDevice, offset: u64, len: usize) -> io::Result<AlignedBuf> {
    let mut buf = filled(0xee, len);
    device.read(offset, &mut buf)?;
    Ok(buf)
}

fn holds(device: &FileDevice, offset: u64, byte: u8, len: usize) -> bool {
    read(device, offset, len)
        .unwrap()
        .iter()
        .all(|&found| found == byte)
}

#[test]
fn a_created_file_has_its_size_and_reads_as_zeros() {
    let scratch = Scratch::new();
    let device = FileDevice::create(&scratch.path("store"), CAPACITY + 100, &options()).unwrap();
    let info = device.info();
    println!("{info:?}");
    assert_eq!((info.kind, info.capacity_bytes), ("file", CAPACITY));
    assert!(info.block_bytes >= 512 && info.block_bytes.is_power_of_two());
    assert!(device.wants_prewrite());
    assert!(holds(&device, 0, 0, 1 << 20));
    drop(device);
    assert_eq!(
        std::fs::metadata(scratch.path("store")).unwrap().len(),
        CAPACITY
    );
    let device = scratch.open(&options()).unwrap();
    assert_eq!(device.capacity(), CAPACITY);
}

#[test]
fn every_way_of_io_does_the_same() {
    for options in all_ways() {
        let scratch = Scratch::new();
        let device = scratch.create(&options);
        let block = u64::from(device.block_bytes());
        assert!(options.direct_io || !device.info().direct);
        assert!(options.io_uring || device.info().io == "pread/pwrite");
        let mut model = vec![0; CAPACITY as usize];
        let mut numbers = Numbers(1);
        // Up to 200 operations: several fillings of a ring.
        for round in 0..20 {
            let count = if round % 2 == 0 {
                200
            } else {
                1 + numbers.below(9)
            };
            let mut pieces = Vec::new();
            let mut at = 0;
            for _ in 0..count {
                let len = (1 + numbers.below(16)) * block;
                at += numbers.below(3) * block;
                if at + len > CAPACITY {
                    break;
                }
                pieces.push((at, filled(numbers.below(256) as u8, len as usize)));
                at += len;
            }
            let ops: Vec<_> = pieces
                .iter()
                .map(|(offset, data)| WriteOp {
                    offset: *offset,
                    data,
                })
                .collect();
            device.write_and_flush(&ops).unwrap();
            for (offset, data) in &pieces {
                model[*offset as usize..][..data.len()].copy_from_slice(data);
            }
            let mut back: Vec<_> = (0..count)
                .map(|_| {
                    (
                        numbers.below(CAPACITY / block - 8) * block,
                        filled(9, 4 * block as usize),
                    )
                })
                .collect();
            let mut ops: Vec<_> = back
                .iter_mut()
                .map(|(offset, into)| ReadOp {
                    offset: *offset,
                    into,
                })
                .collect();
            device.read_many(&mut ops).unwrap();
            for (offset, found) in &back {
                assert!(
                    found[..] == model[*offset as usize..][..found.len()],
                    "{options:?}"
                );
            }
        }
        drop(device);
        assert!(
            std::fs::read(scratch.path("store")).unwrap() == model,
            "{options:?}"
        );
    }
}

#[test]
fn more_threads_than_rings_are_served() {
    let scratch = Scratch::new();
    let device = scratch.create(&options());
    std::thread::scope(|scope| {
        for thread in 0..24_u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..20_u8 {
                    let data = filled(thread as u8 + round, 4096);
                    let base = thread * 64 * 1024;
                    let ops = [0, 8192, 16384].map(|offset| WriteOp {
                        offset: base + offset,
                        data: &data,
                    });
                    device.write_many(&ops).unwrap();
                    let (mut a, mut b) = (filled(0, 4096), filled(0, 4096));
                    let mut reads = [
                        ReadOp {
                            offset: base,
                            into: &mut a,
                        },
                        ReadOp {
                            offset: base + 16384,
                            into: &mut b,
                        },
                    ];
                    device.read_many(&mut reads).unwrap();
                    assert!(a[..] == data[..] && b[..] == data[..]);
                }
            });
        }
    });
}

#[test]
fn only_one_handle_may_write() {
    let scratch = Scratch::new();
    let device = scratch.create(&options());
    assert!(matches!(scratch.open(&options()), Err(Error::InUse)));
    assert!(matches!(scratch.open(&read_only()), Err(Error::InUse)));
    let again = FileDevice::create(&scratch.path("store"), CAPACITY, &options());
    assert!(matches!(again, Err(Error::InUse)));
    drop(device);
    let one = scratch.open(&read_only()).unwrap();
    let two = scratch.open(&read_only()).unwrap();
    assert!(matches!(scratch.open(&options()), Err(Error::InUse)));
    drop((one, two));
    scratch.open(&options()).unwrap();
}

#[test]
fn read_only_refuses_every_change() {
    let scratch = Scratch::new();
    let device = scratch.create(&options());
    write(&device, 0, 1, 4096).unwrap();
    drop(device);
    let device = scratch.open(&read_only()).unwrap();
    assert!(holds(&device, 0, 1, 4096));
    for error in [
        write(&device, 0, 2, 4096),
        device.flush(),
        device.discard(0, 4096),
    ] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    let created = FileDevice::create(&scratch.path("new"), CAPACITY, &read_only());
    assert!(matches!(created, Err(Error::InvalidArgument(_))));
    assert!(!scratch.path("new").exists());
}

#[test]
fn create_takes_an_empty_file_and_leaves_others_alone() {
    let scratch = Scratch::new();
    let path = scratch.path("store");
    std::fs::write(&path, b"precious").unwrap();
    let created = FileDevice::create(&path, CAPACITY, &options());
    assert!(matches!(created, Err(Error::Exists { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::write(&path, b"").unwrap();
    assert_eq!(scratch.create(&options()).capacity(), CAPACITY);
    let directory = FileDevice::create(scratch.directory.path(), CAPACITY, &options());
    assert!(matches!(directory, Err(Error::InvalidArgument(_))));
    assert!(matches!(
        FileDevice::open(&scratch.path("none"), &options()),
        Err(Error::NotFound { .. })
    ));
    let nowhere = scratch.path("none").join("store");
    assert!(matches!(
        FileDevice::create(&nowhere, CAPACITY, &options()),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn a_failed_create_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let path = scratch.path("store");
    // Too large for any file system, and too small for a block.
    for capacity in [i64::MAX as u64, 100, 0] {
        assert!(FileDevice::create(&path, capacity, &options()).is_err());
        assert!(!path.exists());
        std::fs::write(&path, b"").unwrap();
        assert!(FileDevice::create(&path, capacity, &options()).is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_shortened_file_is_an_error_not_a_panic() {
    for options in all_ways() {
        let scratch = Scratch::new();
        let device = scratch.create(&options);
        write(&device, 0, 1, CAPACITY as usize).unwrap();
        device.flush().unwrap();
        device.file.set_len(CAPACITY / 2 + 100).unwrap();
        let end = CAPACITY / 2;
        assert!(holds(&device, end - 4096, 1, 4096));
        for (offset, len) in [(end - 4096, 8192), (end, 4096), (end + 4096, 4096)] {
            let error = read(&device, offset, len).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::UnexpectedEof,
                "{options:?} at {offset}"
            );
        }
        let (mut a, mut b) = (filled(0, 4096), filled(0, 8192));
        let mut ops = [
            ReadOp {
                offset: 0,
                into: &mut a,
            },
            ReadOp {
                offset: end - 4096,
                into: &mut b,
            },
        ];
        let error = device.read_many(&mut ops).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{options:?}");
    }
}

#[test]
fn the_end_of_the_device_is_the_end() {
    let scratch = Scratch::new();
    let device = scratch.create(&options());
    let error = read(&device, CAPACITY, 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let error = write(&device, CAPACITY, 1, 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = device.discard(u64::MAX - 4095, 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        std::fs::metadata(scratch.path("store")).unwrap().len(),
        CAPACITY
    );
}

#[test]
#[should_panic(expected = "not aligned")]
fn a_misaligned_buffer_is_a_bug() {
    let scratch = Scratch::new();
    let mut buf = filled(0, 8192);
    let _ = scratch.create(&options()).read(0, &mut buf[100..4196]);
}

#[test]
fn discards_give_file_space_back() {
    let scratch = Scratch::new();
    let device = scratch.create(&options());
    write(&device, 0, 1, CAPACITY as usize).unwrap();
    device.flush().unwrap();
    let allocated = || {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(scratch.path("store")).unwrap())
            * 512
    };
    let full = allocated();
    device.discard(1 << 20, 2 << 20).unwrap();
    device.flush().unwrap();
    if !device.info().discard {
        println!("SKIPPED: the file system punches no holes");
        return;
    }
    assert!(
        allocated() + (2 << 20) <= full,
        "{} of {full} bytes left",
        allocated()
    );
    assert!(holds(&device, 1 << 20, 0, 2 << 20));
    assert!(holds(&device, 0, 1, 1 << 20) && holds(&device, 3 << 20, 1, 1 << 20));
    assert_eq!(
        std::fs::metadata(scratch.path("store")).unwrap().len(),
        CAPACITY
    );
}

#[test]
fn a_refused_ring_operation_is_done_by_a_plain_call() {
    use rustix::io::Errno;
    assert_eq!(bytes_done(None).unwrap(), 0);
    assert_eq!(bytes_done(Some(4096)).unwrap(), 4096);
    for errno in [Errno::AGAIN, Errno::INTR, Errno::INVAL, Errno::OPNOTSUPP] {
        assert_eq!(bytes_done(Some(-errno.raw_os_error())).unwrap(), 0);
    }
    for errno in [Errno::IO, Errno::NOSPC] {
        let error = bytes_done(Some(-errno.raw_os_error())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
    }
}
