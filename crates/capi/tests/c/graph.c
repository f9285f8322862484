/* Along links: frontiers that are visited in batches, walks in steps. */

#include "check.h"

/* A tree: each person has two friends, "n2k+1" and "n2k+2" of "nk", the last ones friends who are not there. */
enum { PEOPLE = 31 };

static void plant(kelix_session *session, kelix_table people) {
    kelix_item_builder *builder = NULL;
    char key[16], friend[16];
    unsigned at, which;
    OK(NULL, kelix_item_builder_new(&builder));
    for (at = 0; at < PEOPLE; at++) {
        OK(NULL, kelix_item_builder_clear(builder));
        for (which = 1; which <= 2; which++) {
            snprintf(friend, sizeof friend, "n%u", 2 * at + which);
            OK(NULL, kelix_item_builder_link(builder, text("friend"), people, text(friend), bytes(NULL, 0)));
        }
        snprintf(key, sizeof key, "n%u", at);
        OK(session, kelix_put_item(session, people, text(key), builder, NULL, NULL));
    }
    kelix_item_builder_free(builder);
}

static void visits(kelix_session *session, kelix_table people, kelix_item **items) {
    kelix_frontier *frontier = NULL;
    kelix_item *twice[2];
    int results[8];
    size_t count = 0;
    uint16_t id = 0;
    kelix_bytes key;
    OK(NULL, kelix_frontier_new(&frontier));
    OK(NULL, kelix_frontier_add(frontier, people, text("n0")));
    OK(NULL, kelix_frontier_add(frontier, people, text("nobody")));
    OK(session, kelix_visit(session, frontier, 0, 2, items, results));
    CHECK(results[0] == KELIX_OK && results[1] == KELIX_ABSENT && is(about(items[0]).key, "n0"));
    OK(NULL, kelix_frontier_add_links(frontier, items[0], text("friend"), &count));
    CHECK(count == 2);
    OK(NULL, kelix_frontier_count(frontier, &count));
    CHECK(count == 4);
    OK(NULL, kelix_frontier_target(frontier, 3, &id, &key));
    CHECK(id == kelix_table_id(people) && is(key, "n2"));
    OK(session, kelix_visit(session, frontier, 2, 2, items, NULL));
    CHECK(is(about(items[0]).key, "n1") && is(about(items[1]).key, "n2"));
    OK(session, kelix_visit(session, frontier, 4, 0, NULL, NULL));

    /* What cannot be. */
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_visit(session, frontier, 3, 2, items, results));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_visit(session, frontier, SIZE_MAX, 2, items, results));
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_frontier_target(frontier, 4, &id, &key));
    twice[0] = twice[1] = items[0];
    REFUSED(session, KELIX_BUSY, kelix_visit(session, frontier, 0, 2, twice, results));
    twice[1] = NULL;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_visit(session, frontier, 0, 2, twice, results));
    OK(NULL, kelix_frontier_clear(frontier));
    OK(NULL, kelix_frontier_count(frontier, &count));
    CHECK(count == 0);
    kelix_frontier_free(frontier);
}

static kelix_walk_options options_of(const kelix_place *from, const kelix_bytes *links) {
    kelix_walk_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.from = from;
    options.from_count = 1;
    options.links = links;
    options.link_count = 1;
    return options;
}

static void walks(kelix_session *session, kelix_client *client, kelix_table people, kelix_item **items) {
    kelix_place from;
    kelix_bytes along = text("friend");
    kelix_walk_options options = options_of(&from, &along);
    kelix_walk *walk = NULL;
    kelix_arrival arrivals[8];
    kelix_walked walked;
    kelix_session *other;
    size_t count = 0, all = 0, at;
    int code;
    from.table = people;
    from.key = text("n0");
    walked.size = sizeof walked;

    OK(session, kelix_walk_open(session, &options, &walk));
    while ((code = kelix_walk_next(session, walk, items, arrivals, 8, &count)) == KELIX_OK) {
        for (at = 0; at < count; at++, all++) {
            unsigned number = (unsigned)strtoul((const char *)about(items[at]).key.data + 1, NULL, 10);
            CHECK(arrivals[at].number == all && number == all);
            CHECK(arrivals[at].from == (all == 0 ? KELIX_BEGAN_HERE : (all - 1) / 2));
            CHECK(arrivals[at].depth == (unsigned)((all > 0) + (all > 2) + (all > 6) + (all > 14)));
        }
    }
    CHECK(code == KELIX_ABSENT && count == 0 && all == PEOPLE);
    OK(NULL, kelix_walk_about(walk, &walked));
    CHECK(walked.items == PEOPLE && walked.gone == PEOPLE + 1);
    kelix_walk_free(walk);

    /* Two links far, and not along the first friend's. */
    options.depth = 2;
    OK(session, kelix_walk_open(session, &options, &walk));
    OK(session, kelix_walk_next(session, walk, items, NULL, 8, &count));
    CHECK(count == 1);
    OK(session, kelix_walk_next(session, walk, items, arrivals, 8, &count));
    CHECK(count == 2);
    OK(NULL, kelix_walk_turn_back(walk, arrivals[0].number));
    OK(NULL, kelix_walk_turn_back(walk, 12345));
    OK(session, kelix_walk_next(session, walk, items, arrivals, 8, &count));
    CHECK(count == 2 && is(about(items[0]).key, "n5") && is(about(items[1]).key, "n6"));
    RETURNS(session, KELIX_ABSENT, kelix_walk_next(session, walk, items, arrivals, 8, &count));
    kelix_walk_free(walk);

    /* Depth-first, one at a time. */
    options.depth_first = 1;
    OK(session, kelix_walk_open(session, &options, &walk));
    for (all = 0; (code = kelix_walk_next(session, walk, items, arrivals, 8, &count)) == KELIX_OK; all++) {
        static const char *order[] = {"n0", "n1", "n3", "n4", "n2", "n5", "n6"};
        CHECK(count == 1 && all < 7 && is(about(items[0]).key, order[all]));
    }
    CHECK(all == 7);
    kelix_walk_free(walk);

    OK(session, kelix_walk_open(session, &options, &walk));
    other = session_of(client);
    REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_walk_next(other, walk, items, NULL, 1, &count));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_walk_next(session, walk, items, NULL, 0, &count));
    kelix_walk_free(walk);
    kelix_session_free(other);
    along = bytes("\xff", 1);
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_walk_open(session, &options, &walk));
    CHECK(walk == NULL);
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_session *session = session_of(client);
    kelix_table people = table_of(session, KELIX_HASH, "people");
    kelix_item *items[8];
    size_t at;
    for (at = 0; at < 8; at++) items[at] = new_item();
    plant(session, people);
    visits(session, people, items);
    walks(session, client, people, items);
    for (at = 0; at < 8; at++) kelix_item_free(items[at]);
    kelix_session_free(session);
    kelix_client_free(client);
    return 0;
}
