/* Many keys at once: lists with offsets and with a width, values, rows of the caller's, puts. */

#include "check.h"

enum { KEYS = 1000, WIDTH = 8 };

static kelix_list fixed(const void *data, size_t count, size_t width) {
    kelix_list list;
    memset(&list, 0, sizeof list);
    list.size = sizeof list;
    list.count = count;
    list.data = data;
    list.bytes = count * width;
    list.width = width;
    return list;
}

static char keys[KEYS][WIDTH], rows[KEYS][16];

static void puts_and_gets(kelix_session *session, kelix_table table, kelix_values *values) {
    kelix_list all, texts;
    static int64_t offsets[KEYS + 1];
    static char data[KEYS * 12];
    static int results[KEYS];
    static uint64_t versions[KEYS];
    size_t at, count = 0;
    kelix_bytes value, array;
    const kelix_value_entry *entries = NULL;
    uint64_t version;

    for (at = 0; at < KEYS; at++) {
        char words[32];
        snprintf(words, sizeof words, "k%07u", (unsigned)at);
        memcpy(keys[at], words, WIDTH);
        snprintf(words, sizeof words, "v%.*s", (int)(at % 5), "aaaaaaaa");
        memcpy(data + offsets[at], words, strlen(words));
        offsets[at + 1] = offsets[at] + (int64_t)strlen(words);
    }
    all = fixed(keys, KEYS, WIDTH);
    texts = fixed(data, KEYS, 0);
    texts.bytes = (size_t)offsets[KEYS];
    texts.offsets = offsets;
    OK(session, kelix_multi_put(session, table, &all, &texts, results, versions));
    for (at = 0; at < KEYS; at++) CHECK(results[at] == KELIX_OK && versions[at] != 0);
    OK(session, kelix_delete(session, table, bytes(keys[3], WIDTH)));

    OK(session, kelix_multi_get(session, table, &all, values));
    OK(NULL, kelix_values_count(values, &count));
    CHECK(count == KEYS);
    for (at = 0; at < KEYS; at++) {
        int wanted = at == 3 ? KELIX_ABSENT : KELIX_OK;
        RETURNS(NULL, wanted, kelix_values_get(values, at, &value, &version));
        if (wanted == KELIX_OK) CHECK(value.bytes == 1 + at % 5 && version == versions[at]);
    }
    OK(NULL, kelix_values_get(values, 0, NULL, NULL));
    /* The same as arrays, without a call a key. */
    OK(NULL, kelix_values_arrays(values, &array, &entries, &count));
    CHECK(count == KEYS);
    for (at = 0; at < KEYS; at++) {
        if (at == 3) {
            CHECK(entries[at].start == KELIX_NO_VALUE && entries[at].bytes == 0);
            continue;
        }
        OK(NULL, kelix_values_get(values, at, &value, NULL));
        CHECK((const char *)array.data + entries[at].start == (const char *)value.data);
        CHECK(entries[at].start + entries[at].bytes <= array.bytes && entries[at].bytes == value.bytes);
        CHECK(entries[at].version == versions[at] && entries[at].flags == 0 && entries[at].ends_ns == 0);
    }
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_values_arrays(NULL, &array, &entries, &count));
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_values_arrays(values, NULL, &entries, &count));
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_values_get(values, KEYS, &value, NULL));

    /* Gets and puts in one call. */
    all.count = 10;
    texts.count = 10;
    texts.bytes = (size_t)offsets[10];
    memset(results, 9, sizeof results);
    OK(session, kelix_multi_get_put(session, table, &all, values, &all, &texts, results, versions));
    OK(NULL, kelix_values_count(values, &count));
    CHECK(count == 10 && results[9] == KELIX_OK && results[10] != KELIX_OK);
    OK(session, kelix_multi_get(session, table, &all, values));
    for (at = 0; at < 10; at++) {
        OK(NULL, kelix_values_get(values, at, &value, &version));
        CHECK(value.bytes == 1 + at % 5 && version == versions[at]);
    }
    OK(session, kelix_delete(session, table, bytes(keys[3], WIDTH)));
    texts.count = 9;
    texts.bytes = (size_t)offsets[9];
    REFUSED(session, KELIX_INVALID_ARGUMENT,
            kelix_multi_get_put(session, table, &all, values, &all, &texts, NULL, NULL));

    /* A batch of nothing. */
    all.count = 0;
    OK(session, kelix_multi_get(session, table, &all, values));
    OK(NULL, kelix_values_count(values, &count));
    CHECK(count == 0);
    OK(session, kelix_multi_put(session, table, &all, &all, NULL, NULL));
}

static void into_rows(kelix_session *session, kelix_table table) {
    kelix_list all = fixed(keys, KEYS, WIDTH);
    static uint8_t present[KEYS];
    kelix_grid grid;
    size_t at;
    memset(&grid, 0, sizeof grid);
    grid.size = sizeof grid;
    grid.rows = rows;
    grid.bytes = sizeof rows;
    grid.stride = 16;
    grid.width = 5;
    grid.present = present;
    memset(rows, 9, sizeof rows);
    OK(session, kelix_multi_get_rows(session, table, &all, &grid));
    for (at = 0; at < KEYS; at++) {
        char wanted[16];
        memset(wanted, 0, 5);
        memset(wanted + 5, 9, 11);
        if (at != 3) memset(wanted, 'a', 1 + at % 5), wanted[0] = 'v';
        CHECK(memcmp(rows[at], wanted, 16) == 0 && present[at] == (at != 3));
    }
    /* The last row ends where the memory does. */
    grid.bytes = (KEYS - 1) * 16 + 5;
    grid.present = NULL;
    OK(session, kelix_multi_get_rows(session, table, &all, &grid));
    grid.bytes--;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get_rows(session, table, &all, &grid));
    grid.bytes = sizeof rows;
    grid.width = 4;
    REFUSED(session, KELIX_BUFFER_TOO_SMALL, kelix_multi_get_rows(session, table, &all, &grid));
    CHECK(kelix_last_error(session)->needed_bytes == 5);
    grid.width = 17;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get_rows(session, table, &all, &grid));
    grid.width = 5;
    grid.stride = SIZE_MAX;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get_rows(session, table, &all, &grid));
    grid.rows = NULL;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get_rows(session, table, &all, &grid));
}

static void bad_lists(kelix_session *session, kelix_table table, kelix_values *values) {
    static const int64_t falling[] = {0, 8, 4}, negative[] = {-8, 0, 8}, far[] = {0, 8, INT64_MAX};
    const int64_t *wrong[] = {falling, negative, far};
    kelix_list list, other;
    size_t at;
    for (at = 0; at < 3; at++) {
        list = fixed(keys, 2, WIDTH);
        list.width = 0;
        list.offsets = wrong[at];
        REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get(session, table, &list, values));
    }
    list = fixed(keys, 2, WIDTH);
    list.count = SIZE_MAX / 2;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get(session, table, &list, values));
    list = fixed(NULL, 2, WIDTH);
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get(session, table, &list, values));
    list = fixed(keys, 2, WIDTH);
    list.bytes = (size_t)-1;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get(session, table, &list, values));
    list = fixed(keys, 2, WIDTH);
    list.size = 4;
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get(session, table, &list, values));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_get(session, table, &list, NULL));
    list = fixed(keys, 2, WIDTH);
    other = fixed(keys, 3, WIDTH);
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_multi_put(session, table, &list, &other, NULL, NULL));
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_session *session = session_of(client);
    kelix_table table = table_of(session, KELIX_HASH, "batch");
    kelix_values *values = NULL;
    OK(NULL, kelix_values_new(&values));
    puts_and_gets(session, table, values);
    into_rows(session, table);
    bad_lists(session, table, values);
    kelix_values_free(values);
    kelix_session_free(session);
    kelix_client_free(client);
    return 0;
}
