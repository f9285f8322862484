/* Submit and poll, over shared memory and over TCP: numbers of the caller's own, limits, the descriptor. */

#include <poll.h>

#include "check.h"

enum { KEYS = 200, MOST = 16 };

/* The next completions; waits for the descriptor where there are none. */
static int next(kelix_session *session, kelix_completion *completions, size_t *count) {
    for (;;) {
        int code = kelix_poll(session, completions, MOST, count);
        struct pollfd wait;
        if (code != KELIX_WOULD_WAIT) return code;
        CHECK(*count == 0);
        OK(session, kelix_session_fd(session, &wait.fd));
        wait.events = POLLIN;
        CHECK(poll(&wait, 1, 1000) >= 0);
    }
}

static kelix_completion only(kelix_session *session) {
    kelix_completion completions[MOST];
    size_t count = 0;
    OK(session, next(session, completions, &count));
    CHECK(count == 1);
    return completions[0];
}

static void many(kelix_session *session, kelix_table table) {
    static uint64_t versions[KEYS];
    char seen[KEYS] = {0};
    kelix_completion completions[MOST];
    kelix_item *item = new_item();
    size_t count = 0, ended = 0, at, outstanding = 0;
    char key[16];
    unsigned number;
    int code;
    for (number = 0; number < KEYS; number++) {
        snprintf(key, sizeof key, "key%u", number);
        OK(session, kelix_submit_put(session, table, text(key), text(key), number));
    }
    OK(session, kelix_outstanding(session, &outstanding));
    CHECK(outstanding == KEYS);
    while (ended < KEYS) {
        code = next(session, completions, &count);
        CHECK((code == KELIX_OK || code == KELIX_MORE) && count > 0 && count <= MOST);
        for (at = 0; at < count; at++, ended++) {
            kelix_completion *one = &completions[at];
            CHECK(one->kind == KELIX_WRITTEN && one->result == KELIX_OK && one->user_data < KEYS);
            CHECK(!seen[one->user_data]);
            seen[one->user_data] = 1;
            versions[one->user_data] = one->version;
        }
    }
    RETURNS(session, KELIX_ABSENT, kelix_poll(session, completions, MOST, &count));
    for (number = 0; number <= KEYS; number++) {
        snprintf(key, sizeof key, "key%u", number);
        OK(session, kelix_submit_get(session, table, text(key), UINT64_MAX - number));
    }
    for (ended = 0; ended <= KEYS;) {
        code = next(session, completions, &count);
        CHECK((code == KELIX_OK || code == KELIX_MORE) && count > 0);
        for (at = 0; at < count; at++, ended++) {
            number = (unsigned)(UINT64_MAX - completions[at].user_data);
            CHECK(completions[at].kind == KELIX_GOT);
            if (number == KEYS) {
                CHECK(completions[at].result == KELIX_ABSENT && completions[at].items == 0);
                continue;
            }
            snprintf(key, sizeof key, "key%u", number);
            CHECK(is(completions[at].value, key) && completions[at].version == versions[number]);
            OK(session, kelix_completion_item(session, at, 0, item));
            CHECK(is(about(item).key, key));
            REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_completion_item(session, at, 1, item));
        }
        REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_completion_item(session, count, 0, item));
    }
    kelix_item_free(item);
}

static void writes(kelix_session *session, kelix_table table) {
    kelix_completion one;
    const kelix_error *error = NULL;
    uint64_t version;
    OK(session, kelix_submit_compare_and_set(session, table, text("cas"), NULL, text("1"), 1));
    one = only(session);
    CHECK(one.kind == KELIX_COMPARED && one.result == KELIX_OK && one.version != 0);
    version = one.version;
    OK(session, kelix_submit_compare_and_set(session, table, text("cas"), NULL, text("2"), 2));
    one = only(session);
    CHECK(one.user_data == 2 && one.result == KELIX_MISMATCH && one.version == version);
    OK(session, kelix_submit_compare_and_delete(session, table, text("cas"), version, 3));
    one = only(session);
    CHECK(one.kind == KELIX_COMPARED && one.result == KELIX_OK);
    OK(session, kelix_submit_compare_and_set(session, table, text("cas"), &version, text("2"), 4));
    CHECK(only(session).result == KELIX_ABSENT);
    RETURNS(session, KELIX_ABSENT, kelix_completion_error(session, 0, &error));
    CHECK(error == NULL);
    OK(session, kelix_submit_delete(session, table, text("key7"), 5));
    one = only(session);
    CHECK(one.kind == KELIX_DELETED && one.result == KELIX_OK);
    OK(session, kelix_submit_delete(session, table, text("key7"), 6));
    CHECK(only(session).result == KELIX_ABSENT);
}

/* Items, and along links. */
static void links(kelix_session *session, kelix_table table) {
    kelix_item_builder *builder = NULL;
    kelix_frontier *frontier = NULL;
    kelix_item *item = new_item();
    kelix_completion one;
    kelix_write write;
    unsigned seen = 0;
    put(session, table, "target", "at the end");
    OK(NULL, kelix_item_builder_new(&builder));
    OK(NULL, kelix_item_builder_link(builder, text("to"), table, text("target"), bytes(NULL, 0)));
    OK(session, kelix_submit_put_item(session, table, text("from"), builder, NULL, 1));
    one = only(session);
    CHECK(one.kind == KELIX_WRITTEN && one.user_data == 1 && one.version != 0);
    memset(&write, 0, sizeof write);
    write.size = sizeof write;
    write.expect = KELIX_EXPECT_VERSION;
    write.expected = one.version;
    OK(session, kelix_submit_put_item(session, table, text("from"), builder, &write, 2));
    one = only(session);
    CHECK(one.kind == KELIX_COMPARED && one.result == KELIX_OK && one.user_data == 2);
    OK(session, kelix_submit_put_item(session, table, text("from"), builder, &write, 3));
    CHECK(only(session).result == KELIX_MISMATCH);
    write.flags = 1;
    REFUSED(session, KELIX_INVALID_ARGUMENT,
            kelix_submit_put_item(session, table, text("from"), builder, &write, 4));
    OK(session, kelix_get_item(session, table, text("from"), item));
    OK(session, kelix_submit_follow(session, item, text("to"), 5));
    one = only(session);
    CHECK(one.kind == KELIX_GOT && one.user_data == 5 && is(one.value, "at the end"));
    REFUSED(session, KELIX_NO_SUCH_ATTRIBUTE, kelix_submit_follow(session, item, text("nothing"), 6));
    OK(NULL, kelix_frontier_new(&frontier));
    OK(NULL, kelix_frontier_add(frontier, table, text("nobody")));
    OK(NULL, kelix_frontier_add_links(frontier, item, text("to"), NULL));
    OK(session, kelix_submit_visit(session, frontier, 0, 2, 7));
    while (seen != 3) {
        kelix_completion completions[MOST];
        size_t count = 0, at;
        CHECK(next(session, completions, &count) >= KELIX_OK);
        for (at = 0; at < count; at++) {
            CHECK(completions[at].result == (completions[at].user_data == 7 ? KELIX_ABSENT : KELIX_OK));
            seen |= 1u << (completions[at].user_data - 7);
        }
    }
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_submit_visit(session, frontier, 1, 2, 9));
    kelix_frontier_free(frontier);
    kelix_item_builder_free(builder);
    kelix_item_free(item);
}

static void pages(kelix_session *session, kelix_session *other, kelix_table table) {
    kelix_completion one;
    kelix_scan *rest = NULL;
    kelix_item *item = new_item();
    kelix_range range;
    size_t items = 0, pages = 0, at, count = 0;
    char key[16];
    unsigned number;
    for (number = 0; number < 1000; number++) {
        snprintf(key, sizeof key, "row%04u", number);
        put(session, table, key, key);
    }
    memset(&range, 0, sizeof range);
    range.size = sizeof range;
    range.prefix = text("row");
    OK(session, kelix_submit_scan(session, table, &range, 9));
    for (;;) {
        one = only(session);
        CHECK(one.kind == KELIX_PAGE && one.user_data == 9);
        for (at = 0; at < one.items; at++, items++) {
            OK(session, kelix_completion_item(session, 0, at, item));
            snprintf(key, sizeof key, "row%04u", (unsigned)items);
            CHECK(is(about(item).key, key));
        }
        pages++;
        if (one.result == KELIX_OK) break;
        CHECK(one.result == KELIX_MORE);
        OK(session, kelix_completion_scan(session, 0, &rest));
        REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_submit_page(other, rest, 9));
        OK(session, kelix_submit_page(session, rest, 9));
        REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_submit_page(session, rest, 9));
        kelix_scan_free(rest);
    }
    CHECK(items == 1000 && pages > 1);
    RETURNS(session, KELIX_ABSENT, kelix_completion_scan(session, 0, &rest));
    CHECK(rest == NULL);
    RETURNS(session, KELIX_ABSENT, kelix_poll(session, &one, 1, &count));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_poll(session, &one, 0, &count));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_poll(session, NULL, 1, &count));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_completion_scan(session, 0, &rest));
    kelix_item_free(item);
}

int main(void) {
    const char *ways[] = {"KELIX_TEST_DIRECTORY", "KELIX_TEST_TCP"};
    size_t way;
    for (way = 0; way < 2; way++) {
        kelix_client *client = client_at(variable(ways[way]));
        kelix_session *session = session_of(client), *other = session_of(client);
        kelix_bytes fabric;
        uint32_t past = 7;
        OK(session, kelix_session_fabric(session, &fabric));
        CHECK(is(fabric, way == 0 ? "shm" : "tcp"));
        OK(session, kelix_session_past_connections(session, &past));
        CHECK(past == 0);
        many(session, table_of(session, KELIX_HASH, way == 0 ? "near" : "far"));
        writes(session, table_of(session, KELIX_HASH, way == 0 ? "near" : "far"));
        links(session, table_of(session, KELIX_HASH, way == 0 ? "near" : "far"));
        pages(session, other, table_of(session, KELIX_STRINGS, way == 0 ? "nearby" : "faraway"));
        kelix_session_free(session);
        kelix_session_free(other);
        kelix_client_free(client);
    }
    return 0;
}
