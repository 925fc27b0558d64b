//! File names of tables and value files.

use base::TableId;

/// Twenty digits hold any 64-bit id, so names sort as their ids do.
const DIGITS: usize = 20;
const SUFFIX: &str = ".table";

/// Suffix of value files.
const VALUES_SUFFIX: &str = ".values";

/// The name of `table`'s file.
#[must_use]
pub fn file_name(table: TableId) -> String {
    name_of(table, SUFFIX)
}

/// The table of the file named `name`; `None` if [`file_name`] does not make that name.
#[must_use]
pub fn parse_file_name(name: &str) -> Option<TableId> {
    parse(name, SUFFIX)
}

/// The name of the value file `id`. Value files and tables share one id space.
#[must_use]
pub fn values_file_name(id: TableId) -> String {
    name_of(id, VALUES_SUFFIX)
}

/// The id of the value file named `name`; `None` if [`values_file_name`] does not make that name.
#[must_use]
pub fn parse_values_file_name(name: &str) -> Option<TableId> {
    parse(name, VALUES_SUFFIX)
}

fn name_of(id: TableId, suffix: &str) -> String {
    format!("{:0DIGITS$}{suffix}", id.0)
}

fn parse(name: &str, suffix: &str) -> Option<TableId> {
    let digits = name.strip_suffix(suffix)?;
    let all_digits = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok().map(TableId)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip_and_other_names_are_refused() {
        for id in [0, 7, u64::MAX] {
            let name = values_file_name(TableId(id));
            assert_eq!(parse_values_file_name(&name), Some(TableId(id)));
            assert_eq!(parse_file_name(&name), None);
            assert_eq!(parse_file_name(&file_name(TableId(id))), Some(TableId(id)));
        }
        for name in
            ["", ".table", "7.table", "+0000000000000000007.table", "00000000000000000007.log"]
        {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
        assert_eq!(parse_file_name("99999999999999999999.table"), None);
    }
}
