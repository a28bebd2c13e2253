//! The form of a sort key that a space keeps in memory: the same order, and the 35 bytes that
//! most names have beside their text become 17, of which neighbours share about 12.
//!
//! ```text
//! prefix | nspace | effective key | code | what the code leaves open
//! 14       text     text            1
//! ```
//!
//! A text is its bytes and a 0; in it 0 is written as 1 1, and 1 as 1 2. The code says how the
//! name stands to the effective key and, where they are equal, what snap it is of: [`LESS`],
//! then one for each number of bytes that a snap has, then the snaps with a name of their own,
//! then [`GREATER`].

use super::{NO_GENERATION, NO_SNAP, PREFIX_BYTES, SNAPDIR};

/// The name is less than the effective key: its text, snap and generation follow.
const LESS: u8 = 0;
/// The name is the effective key, and its snap has so many bytes, which follow; then the
/// generation.
const SNAP: u8 = 1;
/// A head with a generation, which follows.
const HEAD: u8 = 10;
/// A head without a generation: what most objects are.
const PLAIN_HEAD: u8 = 11;
/// A snapshot directory; its generation follows.
const DIRECTORY: u8 = 12;
/// As [`LESS`].
const GREATER: u8 = 13;

/// Stands for no generation, behind those of 0 to 8 bytes.
const PLAIN_GENERATION: u8 = 9;

/// The compact form of a sort key, or of a bound that is no longer than a sort key's prefix.
pub(crate) fn compact(key: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(key.len());
    let Some((prefix, mut rest)) = key.split_at_checked(PREFIX_BYTES) else {
        to.extend_from_slice(key);
        return to;
    };
    to.extend_from_slice(prefix);
    if rest.is_empty() {
        return to;
    }
    put_text(&mut to, &mut rest);
    put_text(&mut to, &mut rest);
    let order = rest[0];
    rest = &rest[1..];
    if order != b'=' {
        to.push(if order == b'<' { LESS } else { GREATER });
        put_text(&mut to, &mut rest);
        to.extend_from_slice(rest);
        return to;
    }
    let number = |at: usize| u64::from_be_bytes(*rest[at..].first_chunk().unwrap_or(&[0; 8]));
    let (snap, generation) = (number(0), number(8));
    match snap {
        NO_SNAP if generation == NO_GENERATION => {
            to.push(PLAIN_HEAD);
            return to;
        }
        NO_SNAP => to.push(HEAD),
        SNAPDIR => to.push(DIRECTORY),
        _ => put_number(&mut to, SNAP, snap),
    }
    if generation == NO_GENERATION {
        to.push(PLAIN_GENERATION);
    } else {
        put_number(&mut to, 0, generation);
    }
    to
}

/// The sort key of a compact form that [`compact`] made.
pub(crate) fn expand(compact: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(compact.len() + 24);
    let (prefix, mut rest) = compact.split_at(PREFIX_BYTES);
    to.extend_from_slice(prefix);
    take_text(&mut to, &mut rest);
    take_text(&mut to, &mut rest);
    let code = rest[0];
    rest = &rest[1..];
    match code {
        LESS | GREATER => {
            to.push(if code == LESS { b'<' } else { b'>' });
            take_text(&mut to, &mut rest);
            to.extend_from_slice(rest);
            return to;
        }
        _ => to.push(b'='),
    }
    let snap = match code {
        HEAD | PLAIN_HEAD => NO_SNAP,
        DIRECTORY => SNAPDIR,
        bytes => take_number(&mut rest, bytes - SNAP),
    };
    let generation = match rest.split_first() {
        None | Some((&PLAIN_GENERATION, _)) => NO_GENERATION,
        Some((&bytes, mut number)) => take_number(&mut number, bytes),
    };
    to.extend_from_slice(&snap.to_be_bytes());
    to.extend_from_slice(&generation.to_be_bytes());
    to
}

/// Appends a text of a sort key in its compact form, and takes it off there.
fn put_text(to: &mut Vec<u8>, from: &mut &[u8]) {
    let mut at = 0;
    loop {
        match from[at] {
            0 if from[at + 1] == 1 => {
                to.push(0);
                *from = &from[at + 2..];
                return;
            }
            0 => {
                to.extend_from_slice(&[1, 1]);
                at += 1;
            }
            1 => to.extend_from_slice(&[1, 2]),
            byte => to.push(byte),
        }
        at += 1;
    }
}

/// Appends a compact text as a sort key has it, and takes it off there.
fn take_text(to: &mut Vec<u8>, from: &mut &[u8]) {
    let mut at = 0;
    loop {
        match from[at] {
            0 => {
                to.extend_from_slice(&[0, 1]);
                *from = &from[at + 1..];
                return;
            }
            1 => {
                at += 1;
                to.extend_from_slice(if from[at] == 1 { &[0, 0xff] } else { &[1] });
            }
            byte => to.push(byte),
        }
        at += 1;
    }
}

/// Appends how many bytes a number has, and those.
fn put_number(to: &mut Vec<u8>, code: u8, number: u64) {
    let zeros = number.leading_zeros() as usize / 8;
    to.push(code + (8 - zeros) as u8);
    to.extend_from_slice(&number.to_be_bytes()[zeros..]);
}

fn take_number(from: &mut &[u8], bytes: u8) -> u64 {
    let (number, rest) = from.split_at(usize::from(bytes));
    *from = rest;
    number
        .iter()
        .fold(0, |all, byte| all << 8 | u64::from(*byte))
}
