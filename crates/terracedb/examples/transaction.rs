//! A shop sells its last items from several threads: a transaction reads the stock and writes the order
//! and the new stock atomically.
//!
//! ```sh
//! cargo run --example transaction
//! ```

use terracedb::{Db, Keyspace, Result};

/// The shop's keyspaces.
struct Shop {
    db: Db,
    stock: Keyspace,
    orders: Keyspace,
}

impl Shop {
    /// Sells one `item` to `customer`; false if it is sold out.
    fn sell(&self, item: &str, customer: &str) -> Result<bool> {
        // The closure runs again if another sale of the item commits first.
        self.db.transact(|transaction| {
            let left = transaction.get(&self.stock, item)?;
            let left = left.and_then(|left| std::str::from_utf8(&left).ok()?.parse::<u32>().ok());
            let Some(left) = left.and_then(|left| left.checked_sub(1)) else { return Ok(false) };
            transaction.put(&self.stock, item, left.to_string())?;
            transaction.put(&self.orders, format!("{item}/{customer}"), "paid")?;
            Ok(true)
        })
    }
}

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("terracedb-shop-{}", std::process::id()));
    let db = Db::builder(&directory).memory(64 << 20).open()?;
    let shop =
        Shop { stock: db.create_keyspace("stock")?, orders: db.create_keyspace("orders")?, db };
    shop.stock.put("lamp", "10")?;

    let sold = std::thread::scope(|scope| {
        let customers = (0..25).map(|number| {
            let shop = &shop;
            scope.spawn(move || shop.sell("lamp", &format!("customer {number:02}")))
        });
        let customers: Vec<_> = customers.collect();
        let answers = customers.into_iter().filter_map(|customer| customer.join().ok());
        answers.collect::<Result<Vec<_>>>()
    })?;

    // A transaction reads one snapshot, so stock and orders agree.
    let report = shop.db.transaction();
    let left = report.get(&shop.stock, "lamp")?.unwrap_or_default();
    let orders = report.prefix(&shop.orders, "lamp/")?.collect::<Result<Vec<_>>>()?;
    let conflicts = shop.db.statistics().transaction_conflicts;
    println!("25 customers, {} bought a lamp", sold.iter().filter(|sold| **sold).count());
    println!("{} orders, {} lamps left", orders.len(), String::from_utf8_lossy(&left));
    println!("{conflicts} conflicts, each of which ran a sale again");
    assert_eq!((orders.len(), &left[..]), (10, &b"0"[..]));

    drop((report, shop));
    std::fs::remove_dir_all(&directory)
        .map_err(|error| terracedb::Error::invalid("directory of the example").got(error))
}
