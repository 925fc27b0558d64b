//! This engine's cache alone: frames in DRAM, over an SCM tier in a file.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use base::{Account, Clock, Result, SystemClock};
use cache::{PageCache, PageKey, PageKind, SCM_MAGIC, ScmHit, ScmOptions, ScmTier};
use media::scm::{Scm, ScmLocation};
use media::{Buf, Purpose};

use super::backing::{self, Backing};
use super::{Found, Hybrid, PageObjects, below_bytes};
use crate::stores::{Opened, Setup, option};

/// Memory besides the cache, bytes: code, threads, buffers.
const BESIDE: u64 = 24 << 20;

struct Terrace {
    cache: Arc<PageCache>,
    tier: Arc<ScmTier>,
    stop: Arc<AtomicBool>,
    background: Option<thread::JoinHandle<()>>,
}

pub(in crate::stores) fn open(setup: &Setup<'_>) -> Result<Opened> {
    let mut options = Vec::new();
    let (memory, below) = (setup.memory_bytes - BESIDE, below_bytes(setup));
    option(&mut options, "memory", memory);
    option(&mut options, "file", below);
    let account = Account::unlimited("cache");
    let place: ScmLocation = setup.dir.join("tier").display().to_string().parse()?;
    std::fs::File::create(setup.dir.join("tier"))
        .map(drop)
        .map_err(|error| base::Error::io("create", setup.dir.display(), error))?;
    let clock = Arc::new(SystemClock::new()) as Arc<dyn Clock>;
    let scm = Scm::open(&place, below, &SCM_MAGIC)?;
    let tier = ScmTier::open(scm, ScmOptions::default(), &account, &clock)?;
    option(&mut options, "placement", ScmOptions::default().placement);
    let tier = Arc::new(tier);
    let cache = PageCache::new(&account, memory.saturating_sub(account.used()))?;
    cache.set_lower_tier(&tier);
    let (cache, stop) = (Arc::new(cache), Arc::new(AtomicBool::new(false)));
    let background = {
        let (cache, tier, stop) = (Arc::clone(&cache), Arc::clone(&tier), Arc::clone(&stop));
        thread::spawn(move || {
            while !stop.load(Relaxed) {
                if !tier.step(&cache) {
                    thread::park_timeout(Duration::from_millis(20));
                }
            }
        })
    };
    let thread = background.thread().clone();
    tier.on_work(Box::new(move || thread.unpark()));
    let cache = Terrace { cache, tier, stop, background: Some(background) };
    let store = Hybrid::new(cache, Backing::open(setup.dir, setup.data_bytes)?)?;
    Ok(Opened { store: Box::new(store), options })
}

const fn key(number: u32) -> PageKey {
    PageKey { file: 1, page: number }
}

impl PageObjects for Terrace {
    fn get(
        &self,
        number: u32,
        read: &dyn Fn() -> Result<Buf>,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<Found> {
        if let Some(frame) = self.cache.get(key(number), PageKind::Data) {
            visit(backing::object(&frame));
            return Ok(Found::Dram);
        }
        match self.tier.find(key(number), PageKind::Data) {
            Some(ScmHit::InPlace(page)) => {
                let is_right = page.is_verified || backing::is_right(number, &*page.page);
                if is_right {
                    if !page.is_verified {
                        self.tier.verified(&page);
                    }
                    visit(backing::object(&*page.page));
                    return Ok(Found::Below);
                }
                self.tier.damaged(page.slot);
            }
            Some(ScmHit::Read(hit)) => {
                let began = Instant::now();
                let (page, result) = hit.file().read(hit.at(), Buf::pages(1), Purpose::Data);
                self.tier.read_took(began.elapsed());
                result?;
                if let Some(whole) = page.first_chunk().filter(|_| backing::is_right(number, &page))
                {
                    let up = |hit: &cache::ScmRead| {
                        self.cache.insert_warm(key(number), PageKind::Data, whole).map(|_| hit.slot)
                    };
                    if let Some(slot) = Some(&hit).filter(|hit| hit.should_promote).and_then(up) {
                        self.tier.promoted(slot);
                    }
                    visit(backing::object(&page));
                    return Ok(Found::Below);
                }
                self.tier.damaged(hit.slot);
            }
            None => {}
        }
        let page = read()?;
        drop(self.cache.insert(key(number), PageKind::Data, &page));
        visit(backing::object(&page));
        Ok(Found::Backing)
    }
}

impl Drop for Terrace {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(background) = self.background.take() {
            background.thread().unpark();
            let _panicked = background.join();
        }
    }
}
