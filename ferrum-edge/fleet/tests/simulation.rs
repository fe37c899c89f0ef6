//! A deterministic simulation of control planes, edges and a store: partitions, restarts, restored backups, slow and refusing edges,
//! revocations, by a virtual clock. `FERRUM_SEEDS=10000` runs more schedules.

mod simulation {
    pub(crate) mod oracle;
    pub(crate) mod world;
}

use simulation::world::World;

#[test]
fn every_edge_ends_at_what_the_store_has() {
    let seeds = std::env::var("FERRUM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let mut seen = simulation::oracle::Coverage::default();
    for seed in 0..seeds {
        let mut world = World::new(seed);
        world.run(600);
        world.settle();
        world.check_end();
        seen.add(&world.oracle.coverage);
    }
    // A schedule that never meets a case proves nothing about it.
    seen.assert_met();
}
