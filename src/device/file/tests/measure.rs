//! How long one durable write takes, by each way: run by hand, on a machine at rest.
//! The virtual disk's flush completes in a kernel worker, so a loaded machine shows whole
//! scheduler ticks instead.

use std::time::Instant;

use super::*;

type Way<'a> = (&'static str, Box<dyn FnMut(u64) + 'a>);

#[test]
#[ignore = "a measurement"]
fn measure_one_durable_write() {
    let scratch = Scratch::new();
    let device = scratch.create(&options());
    write(&device, 0, 1, CAPACITY as usize).unwrap();
    device.flush().unwrap();
    let data = filled(3, 4096);
    let rings = RingPool::new().unwrap();
    let mut ways: Vec<Way<'_>> = vec![
        (
            "pwrite",
            Box::new(|at| device.write_rest(at, &data, 0).unwrap()),
        ),
        (
            "ring write",
            Box::new(|at| {
                rings.run(device.file.as_fd(), &mut [RingOp::Write(at, &data)]);
            }),
        ),
        (
            "pwrite, fdatasync",
            Box::new(|at| {
                device
                    .write_and_flush(&[WriteOp {
                        offset: at,
                        data: &data,
                    }])
                    .unwrap();
            }),
        ),
        (
            "ring write, fdatasync",
            Box::new(|at| {
                rings.run(device.file.as_fd(), &mut [RingOp::Write(at, &data)]);
                device.flush().unwrap();
            }),
        ),
        (
            "2 pwrites, fdatasync",
            Box::new(|at| {
                device.write_rest(at, &data, 0).unwrap();
                device.write_rest(at / 2, &data, 0).unwrap();
                device.flush().unwrap();
            }),
        ),
        (
            "2 ring writes, fdatasync",
            Box::new(|at| {
                let ops = [at, at / 2].map(|offset| WriteOp {
                    offset,
                    data: &data,
                });
                device.write_and_flush(&ops).unwrap();
            }),
        ),
        (
            "8 pwrites, fdatasync",
            Box::new(|at| {
                (0..8).for_each(|i| device.write_rest(at ^ (i << 16), &data, 0).unwrap());
                device.flush().unwrap();
            }),
        ),
        (
            "8 ring writes, fdatasync",
            Box::new(|at| {
                let ops: Vec<_> = (0..8)
                    .map(|i| WriteOp {
                        offset: at ^ (i << 16),
                        data: &data,
                    })
                    .collect();
                device.write_and_flush(&ops).unwrap();
            }),
        ),
        (
            "pread",
            Box::new(|at| drop(read(&device, at, 4096).unwrap())),
        ),
        (
            "ring read",
            Box::new(|at| {
                let mut into = filled(0, 4096);
                rings.run(device.file.as_fd(), &mut [RingOp::Read(at, &mut into)]);
            }),
        ),
    ];
    for _ in 0..2 {
        for (name, way) in &mut ways {
            let mut times: Vec<_> = (0..500_u64)
                .map(|i| {
                    let start = Instant::now();
                    way(i * 2 % 1024 * 4096);
                    start.elapsed()
                })
                .collect();
            times.sort();
            println!("{name:26} p50 {:?} p90 {:?}", times[250], times[450]);
        }
    }
}
