//! The store on real databases: SQLite, PostgreSQL and MariaDB, the same tests on each.

mod changes;
mod crash;
mod files;
mod following;
mod history;
mod objects;
mod outages;
mod place;
mod pooler;
mod probes;
mod schema;

/// Makes each function a test on each engine.
macro_rules! on_every_engine {
    ($($of:ident::$case:ident,)*) => {
        mod sqlite {
            $(#[tokio::test] async fn $case() { crate::store::$of::$case(ferrum_edge::store::Engine::Sqlite).await; })*
        }
        mod postgres {
            $(#[tokio::test] async fn $case() { crate::store::$of::$case(ferrum_edge::store::Engine::Postgres).await; })*
        }
        mod mariadb {
            $(#[tokio::test] async fn $case() { crate::store::$of::$case(ferrum_edge::store::Engine::MySql).await; })*
        }
    };
}

on_every_engine! {
    changes::a_change_is_there_as_a_whole_or_not_at_all,
    changes::what_changes_nothing_is_no_revision,
    changes::a_change_sees_itself_and_nobody_else_does,
    changes::two_writers_never_overlap,
    changes::who_waits_too_long_for_another_writer_is_told,
    changes::a_change_whose_future_was_dropped_does_nothing_any_more,
    changes::thousands_of_steps_are_one_change,
    changes::readers_see_one_state,
    objects::documents_come_back_byte_for_byte,
    objects::many_large_documents_are_one_change,
    objects::ids_of_all_sorts_are_different_objects,
    objects::what_can_t_be_kept_is_refused_and_the_change_goes_on,
    objects::lists_come_in_pages,
    objects::filters_find_what_they_say_and_nothing_else,
    objects::a_broken_row_spoils_only_itself,
    history::revisions_say_who_when_and_why,
    history::two_states_can_be_compared,
    history::every_state_can_be_had_back,
    history::history_is_kept_for_so_many_revisions,
    history::history_is_kept_for_so_many_changes,
    following::what_has_changed_can_be_asked_for,
    following::another_store_s_revision_is_told,
    schema::migrating_twice_and_at_once_is_migrating,
    schema::a_newer_schema_is_refused,
    schema::without_tables_it_says_what_to_do,
    crash::a_killed_writer_leaves_whole_batches,
}
