//! Decorators: a medium, file or queue that changes some operations and passes the others on.
//!
//! A decorator lists the operations that it passes on unchanged, and its source shows only the operations
//! that it changes. If one is missing from both, the compiler says so, except for `load`, `prepare_stores`,
//! `write_ahead` and `descriptor`, which do nothing by default:
//!
//! ```ignore
//! impl Medium for Counted {
//!     media::delegate!(inner: capabilities, open, remove, rename, link, list, space, sync_names, lock);
//!     media::delegate!(inner: queue, undecorated);
//!
//!     fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
//!         self.creations.fetch_add(1, Relaxed);
//!         self.inner.create(name, access, reserve)
//!     }
//! }
//! ```

/// Implements the listed methods of [`Medium`](crate::Medium), [`File`](crate::File) or
/// [`Queue`](crate::Queue) by calling them on a field. Used inside the `impl` block.
#[macro_export]
macro_rules! delegate {
    ($inner:ident: $($method:ident),+ $(,)?) => {
        $($crate::delegate!(@ $method $inner);)+
    };

    // Medium.
    (@ capabilities $inner:ident) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.$inner.capabilities()
        }
    };
    (@ create $inner:ident) => {
        fn create(
            &self,
            name: &str,
            access: $crate::Access,
            reserve: u64,
        ) -> ::base::Result<::std::sync::Arc<dyn $crate::File>> {
            self.$inner.create(name, access, reserve)
        }
    };
    (@ open $inner:ident) => {
        fn open(
            &self,
            name: &str,
            access: $crate::Access,
        ) -> ::base::Result<::std::sync::Arc<dyn $crate::File>> {
            self.$inner.open(name, access)
        }
    };
    (@ remove $inner:ident) => {
        fn remove(&self, name: &str) -> ::base::Result<()> {
            self.$inner.remove(name)
        }
    };
    (@ rename $inner:ident) => {
        fn rename(&self, from: &str, to: &str) -> ::base::Result<()> {
            self.$inner.rename(from, to)
        }
    };
    (@ link $inner:ident) => {
        fn link(&self, name: &str, to: &dyn $crate::Medium) -> ::base::Result<bool> {
            self.$inner.link(name, to)
        }
    };
    (@ list $inner:ident) => {
        fn list(&self) -> ::base::Result<Vec<$crate::Listing>> {
            self.$inner.list()
        }
    };
    (@ space $inner:ident) => {
        fn space(&self) -> ::base::Result<Option<$crate::Space>> {
            self.$inner.space()
        }

        fn space_for(&self, name: &str) -> ::base::Result<Option<$crate::Space>> {
            self.$inner.space_for(name)
        }
    };
    (@ sync_names $inner:ident) => {
        fn sync_names(&self, names: &[&str]) -> ::base::Result<()> {
            self.$inner.sync_names(names)
        }
    };
    (@ lock $inner:ident) => {
        fn lock(&self) -> ::base::Result<Box<dyn ::std::any::Any + Send + Sync>> {
            self.$inner.lock()
        }
    };
    (@ queue $inner:ident) => {
        fn queue(&self, depth: usize) -> ::base::Result<Box<dyn $crate::Queue>> {
            self.$inner.queue(depth)
        }
    };

    // Medium and File.
    (@ undecorated $inner:ident) => {
        fn undecorated(&self) -> &dyn ::std::any::Any {
            self.$inner.undecorated()
        }
    };

    // File.
    (@ name $inner:ident) => {
        fn name(&self) -> &str {
            self.$inner.name()
        }
    };
    (@ size $inner:ident) => {
        fn size(&self) -> ::base::Result<u64> {
            self.$inner.size()
        }
    };
    (@ read $inner:ident) => {
        fn read(
            &self,
            at: u64,
            buf: $crate::Buf,
            purpose: $crate::Purpose,
        ) -> ($crate::Buf, ::base::Result<()>) {
            self.$inner.read(at, buf, purpose)
        }
    };
    (@ write $inner:ident) => {
        fn write(
            &self,
            at: u64,
            buf: $crate::Buf,
            purpose: $crate::Purpose,
        ) -> ($crate::Buf, ::base::Result<()>) {
            self.$inner.write(at, buf, purpose)
        }
    };
    (@ store $inner:ident) => {
        fn store(&self, at: u64, bytes: &[u8], purpose: $crate::Purpose) -> ::base::Result<()> {
            self.$inner.store(at, bytes, purpose)
        }
    };
    (@ load $inner:ident) => {
        fn load(&self, at: u64, bytes: &mut [u8], purpose: $crate::Purpose) -> ::base::Result<()> {
            self.$inner.load(at, bytes, purpose)
        }
    };
    (@ prepare_stores $inner:ident) => {
        fn prepare_stores(&self, at: u64) {
            self.$inner.prepare_stores(at);
        }
    };
    (@ write_ahead $inner:ident) => {
        fn write_ahead(&self, at: u64, len: u64, purpose: $crate::Purpose) -> u64 {
            self.$inner.write_ahead(at, len, purpose)
        }
    };
    (@ sync $inner:ident) => {
        fn sync(&self, purpose: $crate::Purpose) -> ::base::Result<()> {
            self.$inner.sync(purpose)
        }
    };
    (@ set_len $inner:ident) => {
        fn set_len(&self, len: u64) -> ::base::Result<()> {
            self.$inner.set_len(len)
        }
    };

    // Queue.
    (@ submit $inner:ident) => {
        fn submit(&mut self, request: $crate::Request) -> Result<(), $crate::Refused> {
            self.$inner.submit(request)
        }
    };
    (@ complete $inner:ident) => {
        fn complete(
            &mut self,
            least: usize,
            out: &mut Vec<$crate::Completion>,
        ) -> ::base::Result<()> {
            self.$inner.complete(least, out)
        }
    };
    (@ descriptor $inner:ident) => {
        fn descriptor(&mut self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            self.$inner.descriptor()
        }
    };
    (@ in_flight $inner:ident) => {
        fn in_flight(&self) -> usize {
            self.$inner.in_flight()
        }
    };
    (@ depth $inner:ident) => {
        fn depth(&self) -> usize {
            self.$inner.depth()
        }
    };
}
