/* Ranges: prefix, start and stop, numbers, backwards, limit; item by item and all at once; counts. */

#include "check.h"

enum { KEYS = 600 };

static kelix_range all_keys(void) {
    kelix_range range;
    memset(&range, 0, sizeof range);
    range.size = sizeof range;
    return range;
}

static kelix_rows *rows;

/* How many keys a range has, by each of three ways, and the first one. */
static size_t keys_of(kelix_session *session, kelix_table table, const kelix_range *range, char *first) {
    kelix_scan *scan = NULL;
    kelix_item *item = new_item();
    size_t count = 0, steps = 0;
    uint64_t counted = 0;
    kelix_bytes key = {NULL, 0};
    int code;

    OK(session, kelix_scan_into(session, table, range, rows));
    OK(NULL, kelix_rows_count(rows, &count));
    if (count > 0) OK(NULL, kelix_rows_get(rows, 0, &key, NULL, NULL));
    if (first != NULL) snprintf(first, 16, "%.*s", (int)key.bytes, (const char *)key.data);
    OK(session, kelix_count(session, table, range, &counted));
    CHECK(counted == count);
    OK(session, kelix_scan_open(session, table, range, &scan));
    while ((code = kelix_scan_next(session, scan, item)) == KELIX_OK) {
        kelix_bytes value;
        uint64_t version;
        kelix_item_info info = about(item);
        OK(NULL, kelix_rows_get(rows, steps, &key, &value, &version));
        CHECK(key.bytes == info.key.bytes && memcmp(key.data, info.key.data, key.bytes) == 0);
        CHECK(value.bytes == info.value.bytes && version == info.version);
        steps++;
        /* The session can do anything else between. */
        if (steps == 200) put(session, table, "zzz", "last");
        if (steps == 201) OK(session, kelix_delete(session, table, text("zzz")));
    }
    CHECK(code == KELIX_ABSENT && steps == count);
    RETURNS(session, KELIX_ABSENT, kelix_scan_next(session, scan, item));
    kelix_scan_free(scan);
    kelix_item_free(item);
    return count;
}

/* A scan in pages of rows, and rows as arrays. */
static void pages(kelix_session *session, kelix_session *other, kelix_table table) {
    kelix_scan *scan = NULL;
    kelix_bytes data;
    const kelix_row_entry *entries = NULL;
    const kelix_pair *pairs = NULL;
    size_t count = 0, all = 0, at;
    char last[16] = "";
    int code;
    OK(session, kelix_scan_open(session, table, NULL, &scan));
    do {
        code = kelix_scan_next_rows(session, scan, rows, 7);
        CHECK(code == KELIX_OK || code == KELIX_MORE);
        OK(NULL, kelix_rows_arrays(rows, &data, &entries, &pairs, &count));
        CHECK(count <= 7 && pairs == NULL);
        for (at = 0; at < count; at++, all++) {
            const char *key = (const char *)data.data + entries[at].key_start;
            CHECK(entries[at].key_bytes == 4 && entries[at].value_bytes == 4 && entries[at].version != 0);
            CHECK(memcmp(key, (const char *)data.data + entries[at].value_start, 4) == 0);
            CHECK(memcmp(last, key, 4) < 0);
            memcpy(last, key, 4);
        }
        REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_scan_next_rows(other, scan, rows, 7));
    } while (code == KELIX_MORE);
    CHECK(all == KEYS);
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_scan_next_rows(session, scan, NULL, 7));
    kelix_scan_free(scan);
}

static void strings(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_STRINGS, "names");
    kelix_range range = all_keys();
    char words[16], first[16];
    unsigned at;
    for (at = 0; at < KEYS; at++) {
        snprintf(words, sizeof words, "%c%03u", at % 2 ? 'b' : 'a', at);
        put(session, table, words, words);
    }
    CHECK(keys_of(session, table, NULL, first) == KEYS && strcmp(first, "a000") == 0);
    range.prefix = text("b");
    CHECK(keys_of(session, table, &range, first) == KEYS / 2 && strcmp(first, "b001") == 0);
    range.backwards = 1;
    range.limit = 10;
    CHECK(keys_of(session, table, &range, first) == 10 && strcmp(first, "b599") == 0);
    range = all_keys();
    range.start = text("a100");
    range.stop = text("a200");
    CHECK(keys_of(session, table, &range, first) == 50 && strcmp(first, "a100") == 0);
    range.stop = text("a000");
    CHECK(keys_of(session, table, &range, first) == 0);
    range.numbers = 1;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_scan_into(session, table, &range, rows));
    range = all_keys();
    range.backwards = 2;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_scan_into(session, table, &range, rows));
}

/* Attributes beside values, one by one and as an array. */
static void attributes(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_STRINGS, "towns");
    kelix_item_builder *builder = NULL;
    const kelix_row_entry *entries = NULL;
    const kelix_pair *pairs = NULL;
    const kelix_cell *cells = NULL;
    kelix_bytes names[2], found, data;
    size_t count = 0, at;
    OK(NULL, kelix_item_builder_new(&builder));
    OK(NULL, kelix_item_builder_bytes(builder, text("river"), text("Donau")));
    OK(NULL, kelix_item_builder_bytes(builder, text("people"), text("128928")));
    OK(session, kelix_put_item(session, table, text("ulm"), builder, NULL, NULL));
    kelix_item_builder_free(builder);
    put(session, table, "york", "a value");
    names[0] = text("people");
    names[1] = text("nothing");
    OK(NULL, kelix_rows_set_attributes(rows, names, 2));
    OK(session, kelix_scan_into(session, table, NULL, rows));
    for (at = 0; at < 4; at++) {
        RETURNS(NULL, at == 0 ? KELIX_OK : KELIX_ABSENT, kelix_rows_attribute(rows, at / 2, at % 2, &found));
        CHECK(is(found, at == 0 ? "128928" : ""));
    }
    OK(NULL, kelix_rows_arrays(rows, &data, &entries, &pairs, &count));
    OK(NULL, kelix_rows_cells(rows, &cells, &count));
    CHECK(count == 4 && cells[0].bytes == 6 && cells[3].start == KELIX_NO_VALUE);
    CHECK(memcmp((const char *)data.data + cells[0].start, "128928", 6) == 0);
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_rows_attribute(rows, 2, 0, &found));
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_rows_attribute(rows, 0, 2, &found));
    names[1] = bytes("\xff", 1);
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_rows_set_attributes(rows, names, 2));
    OK(NULL, kelix_rows_set_attributes(rows, NULL, 0));
    OK(session, kelix_scan_into(session, table, NULL, rows));
    OK(NULL, kelix_rows_cells(rows, &cells, &count));
    CHECK(count == 0 && cells == NULL);
}

static void numbers(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_INLINE, "counts");
    kelix_range range = all_keys();
    kelix_bytes key, value;
    const kelix_row_entry *entries = NULL;
    const kelix_pair *pairs = NULL;
    unsigned char room[8], number[8];
    size_t count = 0;
    uint64_t at;
    for (at = 0; at < 100; at++) {
        OK(session, kelix_put(session, table, kelix_number(at * 10, room), kelix_number(at, number), NULL));
    }
    range.numbers = 1;
    range.first = 100;
    range.last = 200;
    OK(session, kelix_scan_into(session, table, &range, rows));
    OK(NULL, kelix_rows_arrays(rows, &value, &entries, &pairs, &count));
    CHECK(count == 11 && entries == NULL);
    CHECK(memcmp(pairs[10].key, kelix_number(200, room).data, 8) == 0);
    CHECK(memcmp(pairs[10].value, kelix_number(20, room).data, 8) == 0);
    OK(NULL, kelix_rows_count(rows, &count));
    CHECK(count == 11);
    OK(NULL, kelix_rows_get(rows, 10, &key, &value, NULL));
    CHECK(key.bytes == 8 && memcmp(key.data, kelix_number(200, room).data, 8) == 0);
    CHECK(value.bytes == 8 && memcmp(value.data, kelix_number(20, room).data, 8) == 0);
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_rows_get(rows, 11, &key, NULL, NULL));
}

static void hash_tables(kelix_session *session) {
    kelix_table table = table_of(session, KELIX_HASH, "hash");
    kelix_range range = all_keys();
    char words[16];
    unsigned at;
    uint64_t estimate = 0;
    for (at = 0; at < 50; at++) {
        snprintf(words, sizeof words, "%u", at);
        put(session, table, words, words);
    }
    CHECK(keys_of(session, table, NULL, NULL) == 50);
    OK(session, kelix_estimate(session, table, NULL, &estimate));
    CHECK(estimate == 50);
    range.limit = 5;
    CHECK(keys_of(session, table, &range, NULL) == 5);
    range.start = text("3");
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_scan_into(session, table, &range, rows));
}

static void of_another_session(kelix_session *session, kelix_client *client) {
    kelix_session *other = session_of(client);
    kelix_table table = table_of(session, KELIX_STRINGS, "names");
    kelix_scan *scan = NULL;
    kelix_item *item = new_item();
    OK(session, kelix_scan_open(session, table, NULL, &scan));
    OK(session, kelix_scan_next(session, scan, item));
    REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_scan_next(other, scan, item));
    /* What was refused is as it was. */
    OK(session, kelix_scan_next(session, scan, item));
    CHECK(is(about(item).key, "a002"));
    pages(session, other, table);
    kelix_session_free(other);
    /* A scan outlives its session only to be freed. */
    other = session_of(client);
    kelix_scan_free(scan);
    OK(other, kelix_scan_open(other, table, NULL, &scan));
    kelix_session_free(other);
    kelix_scan_free(scan);
    kelix_item_free(item);
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_session *session = session_of(client);
    OK(NULL, kelix_rows_new(&rows));
    strings(session);
    attributes(session);
    numbers(session);
    hash_tables(session);
    of_another_session(session, client);
    kelix_rows_free(rows);
    kelix_session_free(session);
    kelix_client_free(client);
    return 0;
}
