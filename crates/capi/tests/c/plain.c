/* Values by key: get, put, delete, compare-and-set, flags and ends, tables and their names. */

#include "check.h"

static void gets_and_puts(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_HASH, "colours");
    char buffer[64];
    kelix_got got;
    uint64_t version = 0, other = 0;
    got.size = sizeof got;

    RETURNS(session, KELIX_ABSENT, kelix_get(session, table, text("red"), buffer, sizeof buffer, &got));
    OK(session, kelix_put(session, table, text("red"), text("#ff0000"), &version));
    OK(session, kelix_get(session, table, text("red"), buffer, sizeof buffer, &got));
    CHECK(got.bytes == 7 && memcmp(buffer, "#ff0000", 7) == 0 && got.version == version);
    OK(session, kelix_get(session, table, text("red"), buffer, 7, NULL));

    /* Too little room: how much it takes is told, in two places. */
    REFUSED(session, KELIX_BUFFER_TOO_SMALL, kelix_get(session, table, text("red"), buffer, 6, &got));
    CHECK(got.bytes == 7 && got.version == 0);
    CHECK(kelix_last_error(session)->needed_bytes == 7);
    REFUSED(session, KELIX_BUFFER_TOO_SMALL, kelix_get(session, table, text("red"), NULL, 0, NULL));
    CHECK(kelix_last_error(session)->needed_bytes == 7);

    /* An empty key and an empty value are a key and a value. */
    OK(session, kelix_put(session, table, bytes(NULL, 0), bytes(NULL, 0), NULL));
    OK(session, kelix_get(session, table, bytes(NULL, 0), NULL, 0, &got));
    CHECK(got.bytes == 0);

    /* A caller of an older release, whose struct has no version, gets no more than it has room for. */
    got.size = offsetof(kelix_got, version);
    got.version = 77;
    OK(session, kelix_get(session, table, text("red"), buffer, sizeof buffer, &got));
    CHECK(got.bytes == 7 && got.version == 77);
    got.size = sizeof got;

    OK(session, kelix_put(session, table, text("red"), text("#fe0000"), &other));
    CHECK(other != version);
    OK(session, kelix_delete(session, table, text("red")));
    RETURNS(session, KELIX_ABSENT, kelix_delete(session, table, text("red")));
    RETURNS(session, KELIX_ABSENT, kelix_get(session, table, text("red"), buffer, sizeof buffer, &got));
}

static void large_values(kelix_session *session) {
    static char value[3000000], buffer[3000000];
    kelix_table table = table_of(session, KELIX_HASH, "large");
    kelix_got got;
    size_t at;
    got.size = sizeof got;
    for (at = 0; at < sizeof value; at++) value[at] = (char)(at * 7 + at / 251);
    OK(session, kelix_put(session, table, text("film"), bytes(value, sizeof value), NULL));
    REFUSED(session, KELIX_BUFFER_TOO_SMALL, kelix_get(session, table, text("film"), buffer, 100, &got));
    CHECK(got.bytes == sizeof value);
    OK(session, kelix_get(session, table, text("film"), buffer, sizeof buffer, &got));
    CHECK(got.bytes == sizeof value && memcmp(buffer, value, sizeof value) == 0);
}

/* Gets that never wait, in shared memory: mostly they find what is there, and where they do not kelix_get() does. */
static void gets_that_never_wait(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_HASH, "quick");
    char buffer[16];
    kelix_got got;
    unsigned round, found = 0, waits = 0;
    got.size = sizeof got;
    put(session, table, "key", "value");
    for (round = 0; round < 1000; round++) {
        int code = kelix_try_get(session, table, text("key"), buffer, sizeof buffer, &got);
        CHECK(code == KELIX_OK || code == KELIX_WOULD_WAIT);
        if (code == KELIX_OK) {
            CHECK(got.bytes == 5 && got.copied == 5 && memcmp(buffer, "value", 5) == 0);
            found++;
        } else {
            OK(session, kelix_get(session, table, text("key"), buffer, sizeof buffer, &got));
            waits++;
        }
    }
    CHECK(found > 0 && found + waits == 1000);
    while ((round = (unsigned)kelix_try_get(session, table, text("key"), buffer, 4, &got)) == KELIX_WOULD_WAIT) {
        OK(session, kelix_get(session, table, text("key"), buffer, sizeof buffer, NULL));
    }
    CHECK((int)round == KELIX_BUFFER_TOO_SMALL && got.bytes == 5 && got.copied == 0);
    CHECK(kelix_last_error(session)->needed_bytes == 5);
    /* Of a hash table it takes the server to tell that a key is absent. */
    RETURNS(session, KELIX_WOULD_WAIT,
            kelix_try_get(session, table, text("nothing"), buffer, sizeof buffer, &got));
}

static void parts_of_values(kelix_session *session) {
    static char value[100000], part[1000];
    kelix_table table = table_of(session, KELIX_HASH, "parts");
    kelix_got got;
    uint64_t version = 0;
    size_t at;
    got.size = sizeof got;
    for (at = 0; at < sizeof value; at++) value[at] = (char)(at * 7 + at / 251);
    OK(session, kelix_put(session, table, text("film"), bytes(value, sizeof value), &version));
    OK(session, kelix_get_range(session, table, text("film"), 12345, part, sizeof part, &got));
    CHECK(got.copied == sizeof part && got.bytes == sizeof value && got.version == version);
    CHECK(memcmp(part, value + 12345, sizeof part) == 0);
    OK(session, kelix_get_range(session, table, text("film"), sizeof value - 10, part, sizeof part, &got));
    CHECK(got.copied == 10 && memcmp(part, value + sizeof value - 10, 10) == 0);
    OK(session, kelix_get_range(session, table, text("film"), UINT64_MAX, part, sizeof part, &got));
    CHECK(got.copied == 0 && got.bytes == sizeof value);
    OK(session, kelix_get_range(session, table, text("film"), 0, NULL, 0, NULL));
    RETURNS(session, KELIX_ABSENT, kelix_get_range(session, table, text("no"), 0, part, sizeof part, &got));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_get_range(session, table, text("film"), 0, NULL, 8, &got));
}

static void compare_and_set(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_HASH, "counters");
    uint64_t first = 0, second = 0, told = 0;

    OK(session, kelix_compare_and_set(session, table, text("n"), NULL, text("1"), &first));
    RETURNS(session, KELIX_MISMATCH, kelix_compare_and_set(session, table, text("n"), NULL, text("1"), &told));
    CHECK(told == first);
    OK(session, kelix_compare_and_set(session, table, text("n"), &first, text("2"), &second));
    RETURNS(session, KELIX_MISMATCH, kelix_compare_and_set(session, table, text("n"), &first, text("3"), &told));
    CHECK(told == second);
    RETURNS(session, KELIX_MISMATCH, kelix_compare_and_delete(session, table, text("n"), first, &told));
    CHECK(told == second);
    OK(session, kelix_compare_and_delete(session, table, text("n"), second, &told));
    CHECK(told == 0);
    RETURNS(session, KELIX_ABSENT, kelix_compare_and_delete(session, table, text("n"), second, NULL));
    RETURNS(session, KELIX_ABSENT, kelix_compare_and_set(session, table, text("n"), &second, text("3"), NULL));
}

static void flags_and_ends(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_HASH, "sessions");
    kelix_item *item = new_item();
    kelix_item_info info;
    kelix_write write;
    uint64_t version = 0, told = 0;
    memset(&write, 0, sizeof write);
    write.size = sizeof write;

    write.flags = 0xdeadbeef;
    write.ends_in_ns = 3600000000000u;
    OK(session, kelix_put_with(session, table, text("ada"), text("here"), &write, &version));
    OK(session, kelix_get_item(session, table, text("ada"), item));
    info = about(item);
    CHECK(is(info.key, "ada") && is(info.value, "here") && info.version == version);
    CHECK(info.flags == 0xdeadbeef && info.ends_ns > 1700000000000000000u);
    CHECK(info.table_id == kelix_table_id(table));

    write.expect = KELIX_EXPECT_ABSENT;
    RETURNS(session, KELIX_MISMATCH,
            kelix_put_with(session, table, text("ada"), text("away"), &write, &told));
    CHECK(told == version);
    write.expect = KELIX_EXPECT_VERSION;
    write.expected = version;
    OK(session, kelix_put_with(session, table, text("ada"), text("away"), &write, NULL));

    /* What ended long ago is not there. */
    write.expect = KELIX_EXPECT_ANY;
    REFUSED(session, KELIX_INVALID_ARGUMENT,
            (write.ends_at_ns = 1, kelix_put_with(session, table, text("ada"), text("x"), &write, NULL)));
    write.ends_in_ns = 0;
    OK(session, kelix_put_with(session, table, text("ada"), text("gone"), &write, NULL));
    RETURNS(session, KELIX_ABSENT, kelix_get_item(session, table, text("ada"), item));
    write.expect = 9;
    REFUSED(session, KELIX_INVALID_ARGUMENT,
            kelix_put_with(session, table, text("ada"), text("x"), &write, NULL));
    /* NULL is all defaults. */
    OK(session, kelix_put_with(session, table, text("ada"), text("back"), NULL, NULL));
    OK(session, kelix_get_item(session, table, text("ada"), item));
    info = about(item);
    CHECK(is(info.value, "back") && info.flags == 0 && info.ends_ns == 0);
    kelix_item_free(item);
}

static void tables(kelix_session *session) {
    kelix_table numbers = table_of(session, KELIX_NUMBERS, "orders"), again, other;
    kelix_table counts = table_of(session, KELIX_INLINE, "counts");
    const kelix_bytes *names = NULL;
    size_t count = 0, at;
    int seen = 0;
    unsigned char key[8], value[8] = {1, 2, 3, 4, 5, 6, 7, 8}, buffer[8];

    CHECK(kelix_table_kind(numbers) == KELIX_NUMBERS && kelix_table_kind(counts) == KELIX_INLINE);
    OK(session, kelix_table_open(session, text("orders"), &again));
    CHECK(kelix_table_id(again) == kelix_table_id(numbers));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_table_create(session, KELIX_HASH, text("orders"), &other));
    REFUSED(session, KELIX_NO_SUCH_TABLE, kelix_table_open(session, text("nothing"), &other));

    OK(session, kelix_put(session, numbers, kelix_number(42, key), text("two chairs"), NULL));
    CHECK(key[0] == 0 && key[7] == 42);
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_put(session, numbers, text("42"), text("x"), NULL));
    OK(session, kelix_put(session, counts, kelix_number(7, key), bytes(value, 8), NULL));
    OK(session, kelix_get(session, counts, kelix_number(7, key), buffer, 8, NULL));
    CHECK(memcmp(buffer, value, 8) == 0);
    REFUSED(session, KELIX_INVALID_ARGUMENT,
            kelix_put(session, counts, kelix_number(7, key), text("short"), NULL));

    OK(session, kelix_table_by_id(session, kelix_table_id(numbers), &other));
    OK(session, kelix_get(session, other, kelix_number(42, key), (char[16]){0}, 16, NULL));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_table_by_id(session, 0, &other));

    OK(session, kelix_table_list(session, &names, &count));
    for (at = 0; at < count; at++) seen += is(names[at], "orders") || is(names[at], "colours");
    CHECK(seen == 2);
    OK(session, kelix_table_drop(session, text("orders")));
    RETURNS(session, KELIX_ABSENT, kelix_table_drop(session, text("orders")));
    REFUSED(session, KELIX_NO_SUCH_TABLE, kelix_get(session, numbers, kelix_number(42, key), buffer, 8, NULL));
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_session *session = session_of(client);
    kelix_client_free(client);
    CHECK(kelix_abi() == KELIX_ABI && kelix_version()[0] != 0);
    CHECK(kelix_last_error(session) == NULL);
    gets_and_puts(session);
    large_values(session);
    gets_that_never_wait(session);
    parts_of_values(session);
    compare_and_set(session);
    flags_and_ends(session);
    tables(session);
    kelix_session_free(session);
    return 0;
}
