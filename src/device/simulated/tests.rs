//! Tests of the simulated device: its calls, and each fault of its model but crashes.

mod crash;

use std::collections::BTreeSet;

use super::*;
use crate::device::AlignedBuf;

const BLOCK: u32 = 512;
const SECTOR: usize = 512;
const CAPACITY: u64 = 4 << 20;

fn device() -> SimulatedDevice {
    SimulatedDevice::new(CAPACITY, BLOCK)
}

fn block_of(byte: u8, len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.fill(byte);
    buf
}

fn write(device: &SimulatedDevice, offset: u64, byte: u8, len: usize) -> io::Result<()> {
    let data = block_of(byte, len);
    device.write_many(&[WriteOp {
        offset,
        data: &data,
    }])
}

fn read(device: &SimulatedDevice, offset: u64, len: usize) -> io::Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len);
    device.read(offset, &mut buf)?;
    Ok(buf)
}

fn holds(device: &SimulatedDevice, offset: u64, byte: u8, len: usize) -> bool {
    device
        .read_raw(offset, len)
        .iter()
        .all(|&found| found == byte)
}

fn random_crash(device: &SimulatedDevice, seed: u64) -> SimulatedDevice {
    device.crash_image(CrashPolicy::Random { seed })
}

#[test]
fn it_is_a_device_that_remembers_and_counts() {
    let device = device();
    let (one, two) = (block_of(1, 1024), block_of(2, 512));
    let ops = [
        WriteOp {
            offset: 0,
            data: &one,
        },
        WriteOp {
            offset: 8192,
            data: &two,
        },
    ];
    device.write_and_flush(&ops).unwrap();
    let (mut a, mut b) = (AlignedBuf::zeroed(1024), AlignedBuf::zeroed(512));
    let mut reads = [
        ReadOp {
            offset: 0,
            into: &mut a,
        },
        ReadOp {
            offset: 8192,
            into: &mut b,
        },
    ];
    device.read_many(&mut reads).unwrap();
    assert_eq!((&a[..], &b[..]), (&one[..], &two[..]));
    assert!(
        read(&device, CAPACITY - 512, 512)
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
    device.discard(0, 512).unwrap();
    assert!(holds(&device, 0, 0, 512) && holds(&device, 512, 1, 512));
    let expected = Counters {
        reads: 3,
        read_bytes: 2048,
        writes: 2,
        write_bytes: 1536,
        flushes: 1,
        discards: 1,
        discard_bytes: 512,
        ..Counters::default()
    };
    assert_eq!(device.counters(), expected);
    assert_eq!(device.counters().changes(), 4);
}

#[test]
fn ranges_past_the_end_are_errors() {
    let device = device();
    let error = read(&device, CAPACITY, 512).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let error = write(&device, CAPACITY - 512, 1, 1024).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = device.discard(u64::MAX - 511, 512).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(device.counters(), Counters::default());
}

#[test]
#[should_panic(expected = "not on a 512 B block")]
fn a_misaligned_offset_is_a_bug() {
    let _ = write(&device(), 100, 1, 512);
}

#[test]
#[should_panic(expected = "not aligned")]
fn a_misaligned_buffer_is_a_bug() {
    let data = block_of(1, 1024);
    let _ = device().write_many(&[WriteOp {
        offset: 0,
        data: &data[8..520],
    }]);
}

#[test]
fn sixteen_terabytes_cost_what_is_written() {
    let device = SimulatedDevice::new(16 << 40, 4096);
    let last = (16 << 40) - 4096;
    write(&device, last, 7, 4096).unwrap();
    device.flush().unwrap();
    device.discard(0, last).unwrap();
    device.flush().unwrap();
    assert!(holds(
        &device.crash_image(CrashPolicy::LoseAll),
        last,
        7,
        4096
    ));
    assert!(device.resident_bytes() <= 128 << 10);
}

#[test]
fn a_seed_is_a_repeat() {
    let fill = |device: &SimulatedDevice| {
        for i in 0..40_u64 {
            write(device, i * 4096, i as u8 + 1, 4096).unwrap();
            if i == 19 {
                device.flush().unwrap();
            }
        }
    };
    let (one, two) = (device().with_seed(3), device().with_seed(3));
    fill(&one);
    fill(&two);
    one.set_bad_reads(0.5);
    two.set_bad_reads(0.5);
    let mut differ = 0;
    for seed in 0..20 {
        let images = [random_crash(&one, seed), random_crash(&two, seed)];
        let [a, b] = images.map(|image| image.read_raw(0, 160 << 10));
        assert!(a == b, "seed {seed}");
        differ += u32::from(a != random_crash(&one, seed + 1000).read_raw(0, 160 << 10));
        let [a, b] = [&one, &two].map(|device| read(device, 4096, 8192).unwrap());
        assert_eq!(&a[..], &b[..]);
    }
    assert!(differ > 15);
    assert_eq!(one.counters(), two.counters());
    assert!(one.counters().bad_reads > 0);
}

#[test]
fn the_nth_call_fails_once_or_from_then_on() {
    let device = device();
    device.add_fault(Fault::once(OpKind::Write, 2));
    write(&device, 0, 1, 512).unwrap();
    device.flush().unwrap();
    let error = write(&device, 512, 2, 512).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    write(&device, 1024, 3, 512).unwrap();
    assert!(holds(&device, 512, 0, 512), "reads see no failed write");
    assert!((0..50).any(|seed| holds(&random_crash(&device, seed), 512, 2, 512)));

    let error = FaultError::NoSpace;
    device.add_fault(Fault {
        on: None,
        nth: 2,
        error,
        lasting: true,
    });
    read(&device, 0, 512).unwrap();
    for _ in 0..3 {
        let error = write(&device, 2048, 4, 512).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
    assert!(device.flush().is_err() && device.discard(0, 512).is_err());
    assert!((0..50).all(|seed| holds(&random_crash(&device, seed), 2048, 0, 512)));
    device.clear_faults();
    write(&device, 2048, 4, 512).unwrap();
    assert_eq!(device.counters().failures, 1 + 5);
}

#[test]
fn a_failed_write_of_a_batch_does_not_stop_the_rest() {
    let device = device();
    device.add_fault(Fault::once(OpKind::Write, 2));
    let data = block_of(5, 512);
    let ops = [0, 512, 1024].map(|offset| WriteOp {
        offset,
        data: &data,
    });
    assert!(device.write_many(&ops).is_err());
    assert!(holds(&device, 0, 5, 512) && holds(&device, 1024, 5, 512));
    assert!(holds(&device, 512, 0, 512));
}

#[test]
fn bad_reads_are_wrong_in_one_block_and_right_when_repeated() {
    let device = device();
    write(&device, 0, 1, 64 << 10).unwrap();
    device.set_bad_reads(0.2);
    write(&device, 0, 2, 32 << 10).unwrap();
    let right = device.read_raw(0, 64 << 10);
    let mut kinds = BTreeSet::new();
    let mut wrong_reads = 0;
    for _ in 0..2000 {
        let found = read(&device, 0, 64 << 10).unwrap();
        let wrong: Vec<_> = (found.chunks(SECTOR).zip(right.chunks(SECTOR)))
            .filter(|(found, right)| found != right)
            .collect();
        assert!(wrong.len() <= 1);
        wrong_reads += wrong.len() as u64;
        kinds.extend(wrong.iter().map(|(found, _)| match found {
            block if block.iter().all(|&byte| byte == 0) => "zeros",
            block if block.iter().all(|&byte| byte == block[0]) => "stale",
            _ => "flipped",
        }));
    }
    assert_eq!(device.counters().bad_reads, wrong_reads);
    assert!(
        (300..500).contains(&wrong_reads),
        "{wrong_reads} of 2000 at 20%"
    );
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["flipped", "stale", "zeros"]
    );
    device.set_bad_reads(0.0);
    assert_eq!(read(&device, 0, 64 << 10).unwrap()[..], right[..]);
}

#[test]
fn bad_ranges_outlive_writes_and_crashes() {
    let device = device();
    write(&device, 0, 1, 8192).unwrap();
    device.add_bad_range(1024, 512, BadRange::Unreadable);
    device.add_bad_range(4096, 1024, BadRange::Flipped);
    write(&device, 0, 2, 8192).unwrap();
    device.flush().unwrap();
    for device in [&device, &random_crash(&device, 1)] {
        assert!(read(device, 512, 1024).is_err());
        assert!(read(device, 0, 1024).is_ok());
        let found = read(device, 4096, 2048).unwrap();
        let wrong: Vec<_> = (0..2048).filter(|&i| found[i] != 2).collect();
        assert_eq!(wrong, [0, 512]);
        assert!(holds(device, 0, 2, 8192));
    }
}

#[test]
fn discards_are_zeros_or_stale_or_refused() {
    let stale = device();
    stale.set_discards(Discards::Stale);
    write(&stale, 0, 1, 512).unwrap();
    stale.discard(0, 512).unwrap();
    assert!(holds(&stale, 0, 1, 512) && stale.info().discard);
    let refusing = device();
    refusing.set_discards(Discards::Unsupported);
    write(&refusing, 0, 1, 512).unwrap();
    refusing.discard(0, 512).unwrap();
    assert!(holds(&refusing, 0, 1, 512) && !refusing.info().discard);
    assert_eq!(refusing.counters().discards, 0);
    let zeros = device();
    write(&zeros, 0, 1, 512).unwrap();
    zeros.flush().unwrap();
    zeros.discard(0, 512).unwrap();
    assert!(
        holds(&zeros.crash_image(CrashPolicy::LoseAll), 0, 1, 512),
        "not flushed"
    );
    zeros.flush().unwrap();
    assert!(holds(&zeros.crash_image(CrashPolicy::LoseAll), 0, 0, 512));
}

#[test]
fn corruption_reaches_every_image() {
    let device = device();
    write(&device, 0, 1, 1024).unwrap();
    device.flush().unwrap();
    write(&device, 512, 2, 1024).unwrap();
    device.flip_bit(0, 12);
    device.corrupt(600, 3, |bytes| bytes.fill(0xaa));
    device.erase(1024, 512);
    device.flush().unwrap();
    for image in [device.snapshot(), device.crash_image(CrashPolicy::LoseAll)] {
        assert_eq!(image.read_raw(0, 3), [1, 0x11, 1]);
        assert_eq!(image.read_raw(599, 5), [2, 0xaa, 0xaa, 0xaa, 2]);
        assert!(holds(&image, 1024, 0, 512));
    }
}

#[test]
fn a_snapshot_lives_its_own_life() {
    let device = device();
    write(&device, 0, 1, 512).unwrap();
    let copy = device.grown(CAPACITY * 2);
    assert_eq!((copy.unflushed(), copy.capacity()), (1, CAPACITY * 2));
    assert_eq!(copy.counters(), device.counters());
    write(&copy, CAPACITY, 2, 512).unwrap();
    copy.flush().unwrap();
    assert!(holds(&copy.crash_image(CrashPolicy::LoseAll), 0, 1, 512));
    assert!(holds(&device.crash_image(CrashPolicy::LoseAll), 0, 0, 512));
}

#[test]
fn a_batch_takes_the_time_of_one() {
    let latency = Latency {
        write: Duration::from_millis(3),
        flush: Duration::from_millis(5),
        ..Latency::default()
    };
    let device = device().with_latency(latency);
    let data = block_of(1, 512);
    let ops: Vec<_> = (0..64)
        .map(|i| WriteOp {
            offset: i * 512,
            data: &data,
        })
        .collect();
    let start = Instant::now();
    device.write_and_flush(&ops).unwrap();
    let taken = start.elapsed();
    assert!(taken >= Duration::from_millis(8), "{taken:?}");
    assert!(taken < Duration::from_millis(100), "{taken:?}");
}

#[test]
fn a_null_device_counts_and_keeps_nothing() {
    let device = SimulatedDevice::null(16 << 40);
    let len = 1 << 20;
    for i in 0..100 {
        write(&device, i << 20, 7, len).unwrap();
    }
    device.flush().unwrap();
    device.discard(0, 1 << 40).unwrap();
    assert_eq!(device.counters().write_bytes, 100 << 20);
    assert_eq!((device.resident_bytes(), device.unflushed()), (0, 0));
    assert!(
        read(&device, 0, 4096)
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
    assert_eq!(device.info().kind, "null");
}

#[test]
fn a_device_without_crashes_keeps_no_changes() {
    let device = device().without_crashes();
    write(&device, 0, 1, 4096).unwrap();
    device.discard(0, 512).unwrap();
    assert_eq!(device.unflushed(), 0);
    assert!(holds(&device, 0, 0, 512) && holds(&device, 512, 1, 3584));
}

#[test]
fn many_threads_share_it() {
    let device = device();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || {
                for i in 0..200_u64 {
                    let offset = (thread * 200 + i) * 512;
                    write(device, offset, thread as u8 + 1, 512).unwrap();
                    if i % 10 == 9 {
                        device.flush().unwrap();
                    }
                    assert_eq!(read(device, offset, 512).unwrap()[0], thread as u8 + 1);
                }
            });
        }
    });
    assert_eq!(device.unflushed(), 0);
    let lost = device.crash_image(CrashPolicy::LoseAll);
    for thread in 0..4_u64 {
        assert!(holds(
            &lost,
            thread * 200 * 512,
            thread as u8 + 1,
            200 * 512
        ));
    }
}
