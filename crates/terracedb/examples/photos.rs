//! A photo index as of a service with billions of small objects: the id of a photo leads to its place in
//! large files of photos, and its checksum.
//!
//! Such an index is asked for single ids and never scanned, so it is a hashed keyspace that keeps everything
//! (`keep`): half a bit of memory for each photo beside the filters of its newest tables, and one device
//! read for each lookup. An ordered keyspace has the albums, which are listed; one batch changes both.
//!
//! ```sh
//! cargo run --example photos              # 20,000 photos
//! cargo run --release --example photos -- 2000000
//! ```

use std::error::Error;

use terracedb::hashed::HashedPolicy;
use terracedb::{Db, ErrorKind, KeyspaceOptions, WriteBatch};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Photos of one file; a file is filled, then never changed.
const PHOTOS_PER_VOLUME: u64 = 1000;

/// Photos of an album.
const PHOTOS_PER_ALBUM: u64 = 50;

/// The place of a photo.
#[derive(Debug, PartialEq)]
struct Place {
    volume: u32,
    offset: u64,
    length: u32,
    checksum: u64,
}

impl Place {
    /// The place of photo `number` of this program: no photo is stored.
    fn of(number: u64) -> Self {
        let length = 20_000 + (number.wrapping_mul(0x9e37_79b9) % 80_000) as u32;
        let offset = number % PHOTOS_PER_VOLUME * 100_000;
        let volume = (number / PHOTOS_PER_VOLUME) as u32;
        Self { volume, offset, length, checksum: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn encode(&self) -> Vec<u8> {
        let Self { volume, offset, length, checksum } = self;
        let mut out = volume.to_be_bytes().to_vec();
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&checksum.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let place: [u8; 24] = bytes.try_into()?;
        let (volume, rest) = place.split_at(4);
        let (offset, rest) = rest.split_at(8);
        let (length, checksum) = rest.split_at(4);
        Ok(Self {
            volume: u32::from_be_bytes(volume.try_into()?),
            offset: u64::from_be_bytes(offset.try_into()?),
            length: u32::from_be_bytes(length.try_into()?),
            checksum: u64::from_be_bytes(checksum.try_into()?),
        })
    }
}

/// The key of photo `number`: an id that nobody can guess from another one would be random; this one only
/// looks so.
fn id_of(number: u64) -> [u8; 16] {
    let half = |salt: u64| (number ^ salt).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&half(0).to_be_bytes());
    id[8..].copy_from_slice(&half(0x5bd1_e995).to_be_bytes());
    id
}

fn album_key(number: u64) -> String {
    format!("album {:08}/{:02}", number / PHOTOS_PER_ALBUM, number % PHOTOS_PER_ALBUM)
}

fn main() -> Result<()> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(20_000), |it| it.parse())?;
    let count = count.max(PHOTOS_PER_ALBUM);
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("photos");
    let db = Db::builder(&path).memory(64 << 20).open()?;
    let keep = KeyspaceOptions::new().hashed(HashedPolicy::Keep);
    let photos = db.create_keyspace_opt("photos", &keep)?;
    let albums = db.create_keyspace("albums")?;

    for first in (0..count).step_by(PHOTOS_PER_ALBUM as usize) {
        // A photo is in the index and in its album, or in neither, also after a crash.
        let mut batch = WriteBatch::new();
        for number in first..(first + PHOTOS_PER_ALBUM).min(count) {
            batch.put(&photos, id_of(number), Place::of(number).encode())?;
            batch.put(&albums, album_key(number), id_of(number))?;
        }
        db.write(&batch)?;
    }

    // Lookups by id; an album's photos are found in one call with many device reads in flight.
    let place = photos.get(id_of(7))?.ok_or("photo 7 is missing")?;
    assert_eq!(Place::decode(&place)?, Place::of(7));
    assert_eq!(photos.get(id_of(count))?, None);
    let ids: Vec<_> = albums.prefix("album 00000001/")?.collect::<terracedb::Result<_>>()?;
    let ids: Vec<_> = ids.into_iter().map(|(_, id)| id).collect();
    let places = photos.multi_get(&ids)?;
    for (number, place) in (PHOTOS_PER_ALBUM..).zip(places) {
        let place = place?.ok_or("a photo of an album is missing")?;
        assert_eq!(Place::decode(&place)?, Place::of(number));
    }

    // A hashed keyspace has no order: ranges are refused, and the error says so.
    let refused = photos.prefix("a").err().ok_or("a prefix of ids was found")?;
    assert_eq!(refused.kind(), ErrorKind::Invalid);

    // A photo is removed from both at once.
    let mut batch = WriteBatch::new();
    batch.delete(&photos, id_of(7))?;
    batch.delete(&albums, album_key(7))?;
    db.write(&batch)?;
    assert_eq!(photos.get(id_of(7))?, None);

    db.compact()?;
    let statistics = db.statistics();
    let index =
        statistics.keyspaces.iter().find(|it| it.name == "photos").ok_or("no statistics")?;
    let bytes = index.pinned_bytes as f64 / index.table_entries as f64;
    println!("{} photos, {bytes:.2} bytes of memory for each", index.table_entries);
    assert_eq!(index.table_entries, count - 1);
    Ok(())
}
