//! Which targets a subset has, and where else requests go.

use super::*;
use crate::balance::subset::MAX_KNOWN;
use crate::balance::tests::{active, fail, upstream};
use crate::config::model::{Algorithm, TargetRules};

/// Four targets: two of v1, one of v2, one of none.
fn targets() -> Targets {
    let mut rules = upstream(Algorithm::RoundRobin, &[1, 1, 1, 1]);
    for (target, version) in rules.targets.iter_mut().zip(["v1", "v1", "v2"]) {
        let tags = [("version".to_owned(), version.to_owned())].into();
        *target = TargetRules { tags, ..(**target).clone() }.into();
    }
    rules.active_health = Some(Box::new(active()));
    Targets::build(&rules, None, Instant::now())
}

fn version(version: &str, fallback: Fallback) -> Subset {
    Subset::new([("version".to_owned(), version.to_owned())], fallback)
}

fn chosen(targets: &Targets, subset: &Subset, used: Option<&[bool]>) -> Result<Vec<usize>, NoSubset> {
    let found = targets.choose(subset, used, None, Instant::now())?;
    let all = vec![true; targets.list().len()];
    let mask = found.as_deref().unwrap_or(&all);
    Ok(mask.iter().enumerate().filter(|(_, member)| **member).map(|(index, _)| index).collect())
}

#[test]
fn a_subset_has_the_targets_with_its_tags_that_the_proxy_uses() {
    let targets = targets();
    for _ in 0..2 {
        assert_eq!(chosen(&targets, &version("v1", Fallback::Refuse), None), Ok(vec![0, 1]));
        assert_eq!(chosen(&targets, &version("v2", Fallback::Refuse), None), Ok(vec![2]));
    }
    let used = [false, true, true, true];
    assert_eq!(chosen(&targets, &version("v1", Fallback::Refuse), Some(&used)), Ok(vec![1]));
    assert_eq!(chosen(&targets, &version("v3", Fallback::Refuse), None), Err(NoSubset::Empty));
}

#[test]
fn one_without_a_healthy_target_falls_back_as_it_says() {
    let targets = targets();
    fail(&targets.list()[2], Instant::now());
    assert_eq!(chosen(&targets, &version("v2", Fallback::Refuse), None), Err(NoSubset::Unhealthy));
    assert_eq!(chosen(&targets, &version("v2", Fallback::Any), None), Ok(vec![0, 1, 2, 3]));
    let stable = Arc::new(version("v1", Fallback::Refuse));
    let canary = version("v2", Fallback::Other(stable));
    assert_eq!(chosen(&targets, &canary, None), Ok(vec![0, 1]));
    [0, 1].iter().for_each(|index: &usize| fail(&targets.list()[*index], Instant::now()));
    assert_eq!(chosen(&targets, &canary, None), Err(NoSubset::Unhealthy));
    targets.list()[2].probed(true, Instant::now());
    assert_eq!(chosen(&targets, &canary, None), Ok(vec![2]));
}

#[test]
fn more_subsets_than_are_remembered_are_found_all_the_same() {
    let targets = targets();
    for _ in 0..=MAX_KNOWN {
        assert_eq!(chosen(&targets, &version("v2", Fallback::Refuse), None), Ok(vec![2]));
    }
}
