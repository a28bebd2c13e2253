//! Tests on loop devices and mounts: as root only, skipped and said so elsewhere.

use std::process::Command;

use super::*;

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// A loop device over a file, detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(file: &Path, sector: u32) -> Option<Self> {
        let file = file.to_str()?;
        let sector = sector.to_string();
        match run(
            "losetup",
            &["--find", "--show", "--sector-size", &sector, file],
        ) {
            Some(name) if !name.is_empty() => Some(Self(name)),
            _ => {
                println!("SKIPPED: no loop devices here");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

/// A mounted file system, unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(arguments: &[&str], at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let mounted = run("mount", &[arguments, &[at.to_str()?]].concat());
        if mounted.is_none() {
            println!("SKIPPED: cannot mount here");
        }
        mounted.map(|_| Self(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

#[test]
fn block_devices_work_in_their_own_blocks() {
    for sector in [512, 4096] {
        let scratch = Scratch::new();
        let backing = scratch.path("backing");
        File::create(&backing).unwrap().set_len(8 << 20).unwrap();
        let Some(disk) = Loop::attach(&backing, sector) else {
            return;
        };
        let path = Path::new(&disk.0);
        let device = FileDevice::create(path, CAPACITY, &options()).unwrap();
        println!("{:?}", device.info());
        assert_eq!(
            (device.info().kind, device.block_bytes()),
            ("block device", sector)
        );
        assert_eq!(device.capacity(), 8 << 20);
        assert!(!device.wants_prewrite());
        assert!(matches!(
            FileDevice::open(path, &options()),
            Err(Error::InUse)
        ));
        let data = filled(5, sector as usize);
        let ops: Vec<_> = (0..100)
            .map(|i| WriteOp {
                offset: i * 2 * u64::from(sector),
                data: &data,
            })
            .collect();
        device.write_and_flush(&ops).unwrap();
        assert!(holds(&device, 0, 5, sector as usize));
        assert!(holds(&device, sector.into(), 0, sector as usize));
        write(&device, 4 << 20, 6, 1 << 20).unwrap();
        device.discard(4 << 20, 1 << 20).unwrap();
        device.flush().unwrap();
        assert!(!device.info().discard || holds(&device, 4 << 20, 0, 1 << 20));
        drop(device);
        let device = FileDevice::open(path, &read_only()).unwrap();
        assert!(holds(&device, 0, 5, sector as usize));
        drop(device);
        let over = FileDevice::create(path, 1 << 30, &options());
        assert!(matches!(over, Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn a_mounted_block_device_is_in_use() {
    let scratch = Scratch::new();
    let backing = scratch.path("backing");
    File::create(&backing).unwrap().set_len(16 << 20).unwrap();
    let Some(disk) = Loop::attach(&backing, 512) else {
        return;
    };
    if run("mkfs.ext4", &["-q", &disk.0]).is_none() {
        println!("SKIPPED: no mkfs.ext4");
        return;
    }
    let Some(_mount) = Mount::new(&[&disk.0], scratch.path("mount")) else {
        return;
    };
    let opened = FileDevice::open(Path::new(&disk.0), &options());
    assert!(matches!(opened, Err(Error::InUse)));
}

#[test]
fn a_file_system_without_direct_io_is_used_through_the_cache() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&["-t", "ramfs", "esker-test"], scratch.path("mount")) else {
        return;
    };
    let device = FileDevice::create(&mount.0.join("store"), CAPACITY, &options()).unwrap();
    write(&device, 4096, 7, 8192).unwrap();
    device.flush().unwrap();
    device.discard(4096, 4096).unwrap();
    assert!(holds(&device, 8192, 7, 4096));
    let info = device.info();
    println!("{info:?}");
    assert!(!info.direct && !info.discard);
}
