//! Folded stacks: how often each stack was sampled.

use std::collections::BTreeMap;

/// Folds the output of `perf script --fields comm,ip,sym`. A sample is a paragraph: the name of the thread,
/// then a line for each frame, innermost first. The returned stacks begin with the thread and end with the
/// innermost frame.
pub(crate) fn fold(script: &str) -> BTreeMap<Vec<String>, u64> {
    let mut stacks = BTreeMap::new();
    for sample in script.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some(thread) = lines.next() else { continue };
        let mut stack: Vec<String> = lines.map(frame).collect();
        stack.push(thread.trim().to_owned());
        stack.reverse();
        if stack.len() > 1 {
            *stacks.entry(stack).or_default() += 1;
        }
    }
    stacks
}

/// The function in the line of a frame, without its address and its hash.
fn frame(line: &str) -> String {
    let line = line.trim();
    let symbol = line.split_once(' ').map_or("[unknown]", |(_, symbol)| symbol.trim());
    let symbol = symbol.split("+0x").next().unwrap_or(symbol);
    let is_hash =
        |tail: &str| tail.len() == 16 && tail.bytes().all(|byte| byte.is_ascii_hexdigit());
    match symbol.rsplit_once("::h") {
        Some((name, hash)) if is_hash(hash) => name.to_owned(),
        _ => symbol.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_counted_together() {
        let script = "case 1:\n\t  5593 table::find::h0123456789abcdef+0x2\n\t  55aa main\n\n\
                      case 1:\n\t  5594 table::find::h0123456789abcdef+0x9\n\t  55aa main\n\n\
                      flush:\n\t  ffff [unknown]\n\n\nempty:\n\n";
        let stacks = fold(script);
        let stack =
            |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>();
        assert_eq!(stacks.len(), 2);
        assert_eq!(stacks[&stack(&["case 1:", "main", "table::find"])], 2);
        assert_eq!(stacks[&stack(&["flush:", "[unknown]"])], 1);
    }
}
