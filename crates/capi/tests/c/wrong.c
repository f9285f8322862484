/* What makes no sense is an error of a kind, in every function: NULL, lengths, sizes, handles of another type. */

#include "check.h"

#define WRONG(call) REFUSED(NULL, KELIX_INVALID_ARGUMENT, call)
#define WRONG_IN(session, call) REFUSED(session, KELIX_INVALID_ARGUMENT, call)

static kelix_client *client;
static kelix_session *session;
static kelix_table table;

static void handles_are_null(void) {
    kelix_bytes key = text("key"), found;
    kelix_item *item = new_item();
    uint64_t number = 0;
    size_t count = 0;
    int fd = 0;
    kelix_item_free(NULL), kelix_client_free(NULL), kelix_session_free(NULL), kelix_values_free(NULL);
    kelix_rows_free(NULL), kelix_scan_free(NULL), kelix_frontier_free(NULL), kelix_walk_free(NULL);
    kelix_view_free(NULL), kelix_build_free(NULL), kelix_item_builder_free(NULL);

    WRONG(kelix_session_open(NULL, NULL, (kelix_session *[1]){0}));
    WRONG(kelix_get(NULL, table, key, NULL, 0, NULL));
    WRONG(kelix_put(NULL, table, key, key, NULL));
    WRONG(kelix_delete(NULL, table, key));
    WRONG(kelix_compare_and_set(NULL, table, key, NULL, key, NULL));
    WRONG(kelix_compare_and_delete(NULL, table, key, 0, NULL));
    WRONG(kelix_put_with(NULL, table, key, key, NULL, NULL));
    WRONG(kelix_put_item(NULL, table, key, NULL, NULL, NULL));
    WRONG(kelix_get_item(NULL, table, key, item));
    WRONG(kelix_follow(NULL, item, key, item));
    WRONG(kelix_multi_get(NULL, table, NULL, NULL));
    WRONG(kelix_multi_get_rows(NULL, table, NULL, NULL));
    WRONG(kelix_multi_put(NULL, table, NULL, NULL, NULL, NULL));
    WRONG(kelix_scan_into(NULL, table, NULL, NULL));
    WRONG(kelix_scan_open(NULL, table, NULL, NULL));
    WRONG(kelix_scan_next(NULL, NULL, NULL));
    WRONG(kelix_count(NULL, table, NULL, &number));
    WRONG(kelix_view_open(NULL, key, NULL));
    WRONG(kelix_view_generation(NULL, &number));
    WRONG(kelix_build_open(NULL, key, NULL, 0, NULL));
    WRONG(kelix_build_put(NULL, NULL, 0, key, key));
    WRONG(kelix_build_finish(NULL, NULL, NULL));
    WRONG(kelix_visit(NULL, NULL, 0, 0, NULL, NULL));
    WRONG(kelix_walk_open(NULL, NULL, NULL));
    WRONG(kelix_walk_next(NULL, NULL, NULL, NULL, 1, &count));
    WRONG(kelix_submit_get(NULL, table, key, 0));
    WRONG(kelix_poll(NULL, NULL, 0, NULL));
    WRONG(kelix_session_fd(NULL, &fd));
    WRONG(kelix_statistics(NULL, &found));
    WRONG(kelix_snapshot(NULL, NULL));
    WRONG(kelix_table_open(NULL, key, NULL));
    WRONG(kelix_values_count(NULL, &count));
    WRONG(kelix_rows_count(NULL, &count));
    WRONG(kelix_frontier_count(NULL, &count));
    WRONG(kelix_item_bytes(NULL, key, &found));
    WRONG(kelix_item_builder_flags(NULL, 0));
    WRONG(kelix_walk_turn_back(NULL, 0));
    WRONG_IN(session, kelix_get_item(session, table, key, NULL));
    WRONG_IN(session, kelix_multi_get(session, table, NULL, NULL));
    WRONG_IN(session, kelix_build_put(session, NULL, 0, key, key));
    WRONG_IN(session, kelix_scan_next(session, NULL, item));
    WRONG_IN(session, kelix_visit(session, NULL, 0, 0, NULL, NULL));
    kelix_item_free(item);
}

static void results_are_null(void) {
    WRONG(kelix_connect(NULL, NULL));
    WRONG(kelix_session_open(client, NULL, NULL));
    WRONG(kelix_item_new(NULL));
    WRONG(kelix_item_builder_new(NULL));
    WRONG(kelix_values_new(NULL));
    WRONG(kelix_rows_new(NULL));
    WRONG(kelix_frontier_new(NULL));
    WRONG_IN(session, kelix_table_open(session, text("wrong"), NULL));
    WRONG_IN(session, kelix_table_create(session, KELIX_HASH, text("wrong"), NULL));
    WRONG_IN(session, kelix_table_list(session, NULL, NULL));
    WRONG_IN(session, kelix_scan_open(session, table, NULL, NULL));
    WRONG_IN(session, kelix_count(session, table, NULL, NULL));
    WRONG_IN(session, kelix_session_fd(session, NULL));
    WRONG_IN(session, kelix_statistics(session, NULL));
    WRONG_IN(session, kelix_outstanding(session, NULL));
}

/* A handle of another type, by a cast that a compiler lets pass. */
static void handles_of_another_type(void) {
    kelix_item *item = new_item();
    kelix_values *values = NULL;
    size_t count = 0;
    OK(NULL, kelix_values_new(&values));
    WRONG(kelix_put((kelix_session *)(void *)item, table, text("key"), text("value"), NULL));
    WRONG(kelix_values_count((kelix_values *)(void *)item, &count));
    WRONG(kelix_session_open((kelix_client *)(void *)values, NULL, (kelix_session *[1]){0}));
    WRONG_IN(session, kelix_get_item(session, table, text("key"), (kelix_item *)(void *)values));
    WRONG_IN(session, kelix_get_item(session, table, text("key"), (kelix_item *)(void *)session));
    WRONG_IN(session, kelix_scan_next(session, (kelix_scan *)(void *)values, item));
    /* Freed as something else, it stays. */
    kelix_item_free((kelix_item *)(void *)values);
    OK(NULL, kelix_values_count(values, &count));
    kelix_values_free(values);
    kelix_item_free(item);
}

static void lengths(void) {
    static char key[70000];
    char buffer[8];
    kelix_bytes long_key = bytes(key, sizeof key), nowhere = bytes(NULL, 5), negative = bytes(key, (size_t)-1);
    kelix_frontier *frontier = NULL;
    kelix_table other;
    char name[257];
    WRONG_IN(session, kelix_put(session, table, long_key, text("value"), NULL));
    WRONG_IN(session, kelix_get(session, table, long_key, buffer, sizeof buffer, NULL));
    WRONG_IN(session, kelix_submit_get(session, table, long_key, 1));
    WRONG_IN(session, kelix_put(session, table, nowhere, text("value"), NULL));
    WRONG_IN(session, kelix_put(session, table, text("key"), nowhere, NULL));
    WRONG_IN(session, kelix_put(session, table, text("key"), negative, NULL));
    WRONG_IN(session, kelix_get(session, table, text("key"), NULL, 8, NULL));
    WRONG_IN(session, kelix_get(session, table, text("key"), buffer, (size_t)-1, NULL));
    WRONG_IN(session, kelix_delete(session, table, negative));
    OK(NULL, kelix_frontier_new(&frontier));
    WRONG(kelix_frontier_add(frontier, table, long_key));
    WRONG(kelix_frontier_add(frontier, table, nowhere));
    kelix_frontier_free(frontier);

    memset(name, 'a', sizeof name);
    WRONG_IN(session, kelix_table_create(session, KELIX_HASH, bytes(name, 256), &other));
    WRONG_IN(session, kelix_table_create(session, KELIX_HASH, bytes(name, 0), &other));
    WRONG_IN(session, kelix_table_create(session, KELIX_HASH, text("a/b"), &other));
    WRONG_IN(session, kelix_table_create(session, KELIX_HASH, bytes("\xff\xfe", 2), &other));
    WRONG_IN(session, kelix_table_create(session, 4, text("kind"), &other));
    WRONG_IN(session, kelix_table_create(session, -1, text("kind"), &other));
    CHECK(kelix_number(7, NULL).bytes == 0);
}

static void sizes(void) {
    struct {
        kelix_options known;
        uint64_t later;
    } newer;
    kelix_client *made = client;
    kelix_got got;
    kelix_session_options options;
    kelix_session *opened = session;
    memset(&newer, 0, sizeof newer);
    newer.known.address = text(variable("KELIX_TEST_DIRECTORY"));
    WRONG(kelix_connect(&newer.known, &made));
    CHECK(made == NULL);
    /* Members that come later are no matter as long as they are 0. */
    newer.known.size = sizeof newer;
    OK(NULL, kelix_connect(&newer.known, &made));
    kelix_client_free(made);
    newer.later = 1;
    WRONG(kelix_connect(&newer.known, &made));
    newer.known.size = (size_t)-1;
    WRONG(kelix_connect(&newer.known, &made));
    /* Of an older struct the rest has its defaults. */
    newer.later = 0;
    newer.known.size = offsetof(kelix_options, name_space);
    newer.known.name_space = bytes("\xff", 1);
    OK(NULL, kelix_connect(&newer.known, &made));
    kelix_client_free(made);
    newer.known.size = sizeof newer.known;
    WRONG(kelix_connect(&newer.known, &made));

    got.size = 0;
    WRONG_IN(session, kelix_get(session, table, text("key"), NULL, 0, &got));
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.path = 9;
    WRONG(kelix_session_open(client, &options, &opened));
    CHECK(opened == NULL);
    options.path = 0;
    options.fabric = -1;
    WRONG(kelix_session_open(client, &options, &opened));
    options.fabric = 0;
    options.durable = 2;
    WRONG(kelix_session_open(client, &options, &opened));
    options.durable = 0;
    options.rdma_address = text("nowhere");
    WRONG(kelix_session_open(client, &options, &opened));
    WRONG_IN(session, kelix_session_set_durable(session, 7));
}

/* A table of nobody's: zeros, and words that are made up. */
static void tables(void) {
    kelix_table nobodys;
    memset(&nobodys, 0, sizeof nobodys);
    REFUSED(session, KELIX_SUPERSEDED, kelix_put(session, nobodys, text("key"), text("value"), NULL));
    CHECK(kelix_last_error(session)->retry == 0);
    memset(&nobodys, 0x5a, sizeof nobodys);
    REFUSED(session, KELIX_SUPERSEDED, kelix_get(session, nobodys, text("key"), NULL, 0, NULL));
    CHECK(kelix_table_kind(nobodys) >= KELIX_HASH && kelix_table_kind(nobodys) <= KELIX_STRINGS);
}

int main(void) {
    client = client_at(variable("KELIX_TEST_DIRECTORY"));
    session = session_of(client);
    table = table_of(session, KELIX_HASH, "wrong");
    put(session, table, "key", "value");
    handles_are_null();
    results_are_null();
    handles_of_another_type();
    lengths();
    sizes();
    tables();
    /* After all that the session is as good as before. */
    put(session, table, "key", "value");
    kelix_session_free(session);
    kelix_client_free(client);
    return 0;
}
