//! Promises, judged one case at a time. Each ends as one check with the number of cases it was judged by.

use std::collections::BTreeMap;

use serde::Serialize;

/// Something that is promised.
pub trait Promised: Copy + Ord + 'static {
    /// All of them, in the order in which they are reported.
    const ALL: &'static [Self];

    fn text(self) -> &'static str;
}

/// A promise that was not kept.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Breach {
    pub detail: String,
    /// The order or the session.
    pub about: Option<String>,
}

/// Cases seen so far.
#[derive(Debug)]
pub struct Ledger<P>(BTreeMap<P, (usize, Vec<Breach>)>);

/// One promise over the whole run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub promise: &'static str,
    pub passed: bool,
    /// How often it was put to the test. A promise that no case tested is not broken either.
    pub cases: usize,
    pub breaches: Vec<Breach>,
}

impl<P> Default for Ledger<P> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<P: Promised> Ledger<P> {
    /// Judges one case; `detail` is asked for only when the promise was broken.
    pub fn judge(&mut self, promise: P, kept: bool, about: Option<&str>, detail: impl FnOnce() -> String) {
        let (cases, breaches) = self.0.entry(promise).or_default();
        *cases += 1;
        if !kept {
            breaches.push(Breach { detail: detail(), about: about.map(str::to_owned) });
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (promise, (cases, breaches)) in &other.0 {
            let entry = self.0.entry(*promise).or_default();
            entry.0 += cases;
            entry.1.extend(breaches.iter().cloned());
        }
    }

    pub fn checks(&self) -> Vec<Check> {
        let check = |promise: &P| {
            let (cases, breaches) = self.0.get(promise).cloned().unwrap_or_default();
            Check { promise: promise.text(), passed: breaches.is_empty(), cases, breaches }
        };
        P::ALL.iter().map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Vow {
        Love,
        Honour,
    }

    impl Promised for Vow {
        const ALL: &'static [Self] = &[Self::Love, Self::Honour];

        fn text(self) -> &'static str {
            match self {
                Self::Love => "love",
                Self::Honour => "honour",
            }
        }
    }

    #[test]
    fn one_broken_case_fails_its_check_and_no_other() {
        let mut ledger = Ledger::default();
        ledger.judge(Vow::Honour, true, None, String::new);
        let mut other = Ledger::default();
        other.judge(Vow::Honour, false, Some("SK1"), || "not so".to_owned());
        ledger.merge(&other);
        let checks = ledger.checks();
        assert_eq!(checks.len(), Vow::ALL.len());
        let failed: Vec<_> = checks.iter().filter(|check| !check.passed).collect();
        assert_eq!(failed.len(), 1);
        assert_eq!((failed[0].promise, failed[0].cases), ("honour", 2));
        assert_eq!(failed[0].breaches[0].about.as_deref(), Some("SK1"));
    }
}
