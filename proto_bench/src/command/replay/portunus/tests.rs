//! Which rows run for whom, and what medians are of.

use super::*;

#[test]
fn rows_are_chosen_by_a_part_or_a_beginning() {
    let row = |id: &str| ROWS.iter().find(|row| row.id == id).expect("a row");
    assert!(row("headline").matches("head") && row("offered-1g").matches("offered*"));
    assert!(!row("headline").matches("udp"));
    assert!(row("cap-1-mib").has(Subject::Gateway) && !row("cap-1-mib").has(Subject::Direct));
    assert!(!row("udp-1g").has(Subject::Haproxy) && row("udp-1g").has(Subject::Nginx));
}

#[test]
fn medians_leave_void_rounds_out() {
    let round = |megabits: f64, void: &[&str]| BulkOutcome {
        megabits,
        bytes: 1 << 20,
        void: void.iter().map(|why| (*why).to_owned()).collect(),
        ..BulkOutcome::default()
    };
    let rounds = vec![round(3.0, &[]), round(1.0, &[]), round(9.0, &["lost"]), round(2.0, &[])];
    let cell = Cell { subject: "direct".into(), rounds, missing: None };
    assert_eq!(cell.megabits(), [1.0, 2.0, 3.0]);
    assert_eq!((median(&cell.megabits()), median(&[])), (Some(2.0), None));
    assert_eq!(median(&[1.0, 2.0]), Some(1.5));
}
