/* What Java calls of libkelix: functions that take numbers only, over kelix.h.
 *
 * Gets have functions of their own, and kelix_java_free() frees handles. All others are reached by
 * kelix_java_call(), which takes the number of an operation and a block of memory:
 *
 *   words   0 to 31    arguments; word 0 is the session, or 0
 *   words  32 to 47    results
 *   words  48 to 52    of an error: retry, effect, needed bytes, lengths of operation and text
 *   bytes 512 to 575   of an error: the operation
 *   bytes 576 to 1535  of an error: the text
 *
 * So a new operation takes one function here and one method in Java, and neither JNI nor java.lang.foreign
 * has a line of its own for the operation. The error of a call is copied in the call itself, since a
 * thread in Java may go on as another thread of the system before its next call.
 *
 * Bytes are two words, address and length. Tables are three. Structs of kelix.h in arrays are written by
 * Java as they are, which the assertions below secure. */
#include <errno.h>
#include <jni.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kelix.h"

#define EXPORT __attribute__((visibility("default")))

enum { OUT = 32, ERROR = 48, OPERATION_AT = 512, OPERATION_MOST = 64, TEXT_AT = 576, TEXT_MOST = 960 };

#define SAME(type, size) _Static_assert(sizeof(type) == (size), "Java writes or reads this struct")
SAME(void *, 8);
SAME(kelix_bytes, 16);
SAME(kelix_table, 24);
SAME(kelix_place, 40);
SAME(kelix_new_table, 24);
SAME(kelix_value_entry, 40);
SAME(kelix_row_entry, 56);
SAME(kelix_pair, 16);
SAME(kelix_cell, 16);
SAME(kelix_attribute, 56);
SAME(kelix_arrival, 24);
SAME(kelix_completion, 48);

typedef int64_t word;

#define POINTER(at) ((void *)(intptr_t)a[at])
#define SESSION ((kelix_session *)POINTER(0))
#define BYTES(at) ((kelix_bytes){.data = POINTER(at), .bytes = (size_t)a[(at) + 1]})
#define TABLE(at) ((kelix_table){.word = {(uint64_t)a[at], (uint64_t)a[(at) + 1], (uint64_t)a[(at) + 2]}})
/* The caller's number of what it submits, and the place of a version, a count or a generation that is
 * told. */
#define NUMBER ((uint64_t)a[16])
#define TOLD_NUMBER ((uint64_t *)&a[OUT])
#define TOLD(pointer) ((word)(intptr_t)(pointer))

static void tell_error(word *a, const kelix_error *error) {
    size_t operation = error->operation ? strnlen(error->operation, OPERATION_MOST) : 0;
    size_t text = error->text ? strnlen(error->text, TEXT_MOST) : 0;
    a[ERROR] = error->retry;
    a[ERROR + 1] = error->effect;
    a[ERROR + 2] = (word)error->needed_bytes;
    a[ERROR + 3] = (word)operation;
    a[ERROR + 4] = (word)text;
    memcpy((char *)a + OPERATION_AT, error->operation, operation);
    memcpy((char *)a + TEXT_AT, error->text, text);
}

static int tell_table(word *a, kelix_table table) {
    for (int at = 0; at < 3; at++) a[OUT + at] = (word)table.word[at];
    a[OUT + 3] = kelix_table_id(table);
    a[OUT + 4] = kelix_table_kind(table);
    return KELIX_OK;
}

static int tell_bytes(word *a, int at, kelix_bytes bytes) {
    a[OUT + at] = TOLD(bytes.data);
    a[OUT + at + 1] = (word)bytes.bytes;
    return KELIX_OK;
}

/* All that Java copies of an item. */
static int tell_item(word *a, const kelix_item *item) {
    kelix_item_info info = {.size = sizeof info};
    const kelix_attribute *attributes;
    size_t count;
    int code = kelix_item_about(item, &info);
    if (code == KELIX_OK) code = kelix_item_attributes(item, &attributes, &count);
    if (code != KELIX_OK) return code;
    tell_bytes(a, 0, info.key);
    a[OUT + 2] = (word)info.version;
    a[OUT + 3] = (word)info.ends_ns;
    a[OUT + 4] = info.flags;
    a[OUT + 5] = info.table_id;
    a[OUT + 6] = TOLD(attributes);
    a[OUT + 7] = (word)count;
    return KELIX_OK;
}

static int tell_rows(word *a, const kelix_rows *rows) {
    kelix_bytes data;
    const kelix_row_entry *entries;
    const kelix_pair *pairs;
    const kelix_cell *cells;
    size_t count, cell_count;
    int code = kelix_rows_arrays(rows, &data, &entries, &pairs, &count);
    if (code == KELIX_OK) code = kelix_rows_cells(rows, &cells, &cell_count);
    if (code != KELIX_OK) return code;
    tell_bytes(a, 0, data);
    a[OUT + 2] = TOLD(entries);
    a[OUT + 3] = TOLD(pairs);
    a[OUT + 4] = (word)count;
    a[OUT + 5] = TOLD(cells);
    a[OUT + 6] = (word)cell_count;
    return KELIX_OK;
}

/* Eleven words of a range, and one that says whether there is a range at all. */
static const kelix_range *range_at(const word *a, int at, kelix_range *range) {
    *range = (kelix_range){.size = sizeof *range,
                           .prefix = BYTES(at),
                           .start = BYTES(at + 2),
                           .stop = BYTES(at + 4),
                           .first = (uint64_t)a[at + 6],
                           .last = (uint64_t)a[at + 7],
                           .limit = (uint64_t)a[at + 8],
                           .numbers = (int)a[at + 9],
                           .backwards = (int)a[at + 10]};
    return a[at + 11] ? range : NULL;
}

static kelix_list list_at(const word *a, int at) {
    return (kelix_list){.size = sizeof(kelix_list),
                        .count = (size_t)a[at],
                        .data = POINTER(at + 1),
                        .bytes = (size_t)a[at + 2],
                        .offsets = POINTER(at + 3)};
}

/* A new item as Java writes it: ten words an attribute. */
struct attribute {
    word kind;
    word name[2];
    word bytes[2];
    word table[3];
    word key[2];
};

/* Five words: attributes, how many, flags, ends_in_ns, ends_at_ns. */
static int fill(kelix_item_builder *builder, const word *a) {
    const struct attribute *attributes = POINTER(0);
    int code = kelix_item_builder_clear(builder);
    for (word index = 0; code == KELIX_OK && index < a[1]; index++) {
        const word *of = attributes[index].name;
        kelix_bytes name = {(void *)(intptr_t)of[0], (size_t)of[1]};
        kelix_bytes bytes = {(void *)(intptr_t)of[2], (size_t)of[3]};
        kelix_table table = {{(uint64_t)of[4], (uint64_t)of[5], (uint64_t)of[6]}};
        kelix_bytes key = {(void *)(intptr_t)of[7], (size_t)of[8]};
        code = attributes[index].kind == KELIX_LINK
                   ? kelix_item_builder_link(builder, name, table, key, bytes)
                   : kelix_item_builder_bytes(builder, name, bytes);
    }
    if (code == KELIX_OK && a[2]) code = kelix_item_builder_flags(builder, (uint32_t)a[2]);
    if (code == KELIX_OK && a[3]) code = kelix_item_builder_ends_in(builder, (uint64_t)a[3]);
    if (code == KELIX_OK && a[4]) code = kelix_item_builder_ends_at(builder, (uint64_t)a[4]);
    return code;
}

/* ---- clients and sessions ---- */

static int connect_(word *a) {
    kelix_options options = {.size = sizeof options,
                             .address = BYTES(1),
                             .name_space = BYTES(3),
                             .token = BYTES(5),
                             .tls_ca = BYTES(7),
                             .tls_cert = BYTES(9),
                             .tls_key = BYTES(11),
                             .timeout_ns = (uint64_t)a[13],
                             .retry_ns = (uint64_t)a[14]};
    kelix_client *client = NULL;
    int code = kelix_connect(&options, &client);
    a[OUT] = TOLD(client);
    return code;
}

static int open_session(word *a) {
    kelix_session_options options = {.size = sizeof options,
                                     .fabric = (int)a[2],
                                     .private_caches = (int)a[3],
                                     .durable = (int)a[4],
                                     .timeout_ns = (uint64_t)a[5],
                                     .retry_ns = (uint64_t)a[6],
                                     .max_lag_ns = (uint64_t)a[7],
                                     .no_own_writes = (int)a[8],
                                     .strict = (int)a[9]};
    kelix_session *session = NULL;
    int code = kelix_session_open(POINTER(1), &options, &session);
    a[OUT] = TOLD(session);
    return code;
}

static int fabric(word *a) {
    kelix_bytes name;
    int code = kelix_session_fabric(SESSION, &name);
    return code == KELIX_OK ? tell_bytes(a, 0, name) : code;
}

static int descriptor(word *a) {
    int fd = -1, code = kelix_session_fd(SESSION, &fd);
    a[OUT] = fd;
    return code;
}

static int set_durable(word *a) { return kelix_session_set_durable(SESSION, (int)a[1]); }

static int is_mirror(word *a) {
    int is_mirror = 0, code = kelix_session_is_mirror(SESSION, &is_mirror);
    a[OUT] = is_mirror;
    return code;
}

static int primary(word *a) {
    kelix_bytes address;
    int code = kelix_session_primary(SESSION, &address);
    return code == KELIX_OK ? tell_bytes(a, 0, address) : code;
}

static int lag(word *a) {
    uint64_t lag_ns = 0;
    int code = kelix_session_lag(SESSION, &lag_ns);
    a[OUT] = (word)lag_ns;
    return code;
}

static int cost(word *a) {
    kelix_cost cost = {.size = sizeof cost};
    int code = kelix_session_cost(SESSION, &cost);
    a[OUT] = (word)cost.reads;
    a[OUT + 1] = (word)cost.read_bytes;
    a[OUT + 2] = (word)cost.messages;
    a[OUT + 3] = (word)cost.retries;
    a[OUT + 4] = (word)cost.fallbacks;
    return code;
}

static int statistics(word *a) {
    kelix_bytes json;
    int code = kelix_statistics(SESSION, &json);
    return code == KELIX_OK ? tell_bytes(a, 0, json) : code;
}

static int snapshot(word *a) {
    kelix_snapshot_taken taken = {.size = sizeof taken};
    int code = kelix_snapshot(SESSION, &taken);
    if (code != KELIX_OK) return code;
    tell_bytes(a, 0, taken.path);
    a[OUT + 2] = (word)taken.bytes;
    memcpy(&a[OUT + 3], &taken.seconds, sizeof taken.seconds);
    return code;
}

/* ---- tables ---- */

static int open_table(word *a) {
    kelix_table table;
    int code = kelix_table_open(SESSION, BYTES(1), &table);
    return code == KELIX_OK ? tell_table(a, table) : code;
}

static int create_table(word *a) {
    kelix_table table;
    int code = kelix_table_create(SESSION, (int)a[3], BYTES(1), &table);
    return code == KELIX_OK ? tell_table(a, table) : code;
}

static int drop_table(word *a) { return kelix_table_drop(SESSION, BYTES(1)); }

static int drop_dataset(word *a) { return kelix_dataset_drop(SESSION, BYTES(1)); }

static int table_name(word *a) {
    kelix_bytes name;
    int code = kelix_table_name(SESSION, (uint16_t)a[1], &name);
    return code == KELIX_OK ? tell_bytes(a, 0, name) : code;
}

static int list_tables(word *a) {
    const kelix_bytes *names;
    size_t count;
    int code = kelix_table_list(SESSION, &names, &count);
    return code == KELIX_OK ? tell_bytes(a, 0, (kelix_bytes){names, count}) : code;
}

static int table_by_id(word *a) {
    kelix_table table;
    int code = kelix_table_by_id(SESSION, (uint16_t)a[1], &table);
    return code == KELIX_OK ? tell_table(a, table) : code;
}

/* ---- values ---- */

static int tell_got(word *a, int code, const kelix_got *got) {
    a[OUT] = (word)got->bytes;
    a[OUT + 1] = (word)got->version;
    a[OUT + 2] = (word)got->copied;
    return code;
}

static int get(word *a) {
    kelix_got got = {.size = sizeof got};
    return tell_got(a, kelix_get(SESSION, TABLE(1), BYTES(4), POINTER(6), (size_t)a[7], &got), &got);
}

static int try_get(word *a) {
    kelix_got got = {.size = sizeof got};
    return tell_got(a, kelix_try_get(SESSION, TABLE(1), BYTES(4), POINTER(6), (size_t)a[7], &got), &got);
}

static int get_range(word *a) {
    kelix_got got = {.size = sizeof got};
    int code = kelix_get_range(SESSION, TABLE(1), BYTES(4), (uint64_t)a[8], POINTER(6), (size_t)a[7], &got);
    return tell_got(a, code, &got);
}

static int put(word *a) { return kelix_put(SESSION, TABLE(1), BYTES(4), BYTES(6), TOLD_NUMBER); }

static int put_with(word *a) {
    kelix_write write = {.size = sizeof write,
                         .flags = (uint32_t)a[8],
                         .expect = (int)a[9],
                         .expected = (uint64_t)a[10],
                         .ends_in_ns = (uint64_t)a[11],
                         .ends_at_ns = (uint64_t)a[12]};
    return kelix_put_with(SESSION, TABLE(1), BYTES(4), BYTES(6), &write, TOLD_NUMBER);
}

static int delete(word *a) { return kelix_delete(SESSION, TABLE(1), BYTES(4)); }

static int compare_and_set(word *a) {
    uint64_t expected = (uint64_t)a[9];
    return kelix_compare_and_set(SESSION, TABLE(1), BYTES(4), a[8] ? &expected : NULL, BYTES(6), TOLD_NUMBER);
}

static int compare_and_delete(word *a) {
    return kelix_compare_and_delete(SESSION, TABLE(1), BYTES(4), (uint64_t)a[6], TOLD_NUMBER);
}

/* ---- items ---- */

static int new_items(word *a) {
    kelix_item **items = POINTER(1);
    int code = KELIX_OK;
    for (word index = 0; index < a[2]; index++) items[index] = NULL;
    for (word index = 0; code == KELIX_OK && index < a[2]; index++) code = kelix_item_new(&items[index]);
    return code;
}

static int free_items(word *a) {
    kelix_item **items = POINTER(1);
    for (word index = 0; index < a[2]; index++) kelix_item_free(items[index]);
    return KELIX_OK;
}

static int item_about(word *a) { return tell_item(a, POINTER(1)); }

static int get_item(word *a) {
    int code = kelix_get_item(SESSION, TABLE(1), BYTES(4), POINTER(6));
    return code == KELIX_OK ? tell_item(a, POINTER(6)) : code;
}

static int follow(word *a) {
    int code = kelix_follow(SESSION, POINTER(1), BYTES(2), POINTER(4));
    return code == KELIX_OK ? tell_item(a, POINTER(4)) : code;
}

static int follow_path(word *a) {
    int code = kelix_follow_path(SESSION, POINTER(1), POINTER(2), (size_t)a[3], POINTER(4));
    return code == KELIX_OK ? tell_item(a, POINTER(4)) : code;
}

static int new_builder(word *a) {
    kelix_item_builder *builder = NULL;
    int code = kelix_item_builder_new(&builder);
    a[OUT] = TOLD(builder);
    return code;
}

static int put_item(word *a) {
    kelix_write write = {.size = sizeof write, .expect = (int)a[12], .expected = (uint64_t)a[13]};
    int code = fill(POINTER(6), a + 7);
    if (code != KELIX_OK) return code;
    return kelix_put_item(SESSION, TABLE(1), BYTES(4), POINTER(6), &write, TOLD_NUMBER);
}

/* ---- many keys ---- */

static int new_values(word *a) {
    kelix_values *values = NULL;
    int code = kelix_values_new(&values);
    a[OUT] = TOLD(values);
    return code;
}

static int multi_get(word *a) {
    kelix_list keys = list_at(a, 4);
    kelix_bytes data;
    const kelix_value_entry *entries;
    size_t count;
    int code = kelix_multi_get(SESSION, TABLE(1), &keys, POINTER(8));
    if (code == KELIX_OK) code = kelix_values_arrays(POINTER(8), &data, &entries, &count);
    if (code != KELIX_OK) return code;
    tell_bytes(a, 0, data);
    a[OUT + 2] = TOLD(entries);
    a[OUT + 3] = (word)count;
    return code;
}

static int multi_put(word *a) {
    kelix_list keys = list_at(a, 4), values = list_at(a, 8);
    return kelix_multi_put(SESSION, TABLE(1), &keys, &values, POINTER(12), POINTER(13));
}

/* ---- ranges ---- */

static int new_rows(word *a) {
    kelix_rows *rows = NULL;
    int code = kelix_rows_new(&rows);
    a[OUT] = TOLD(rows);
    return code;
}

static int set_attributes(word *a) { return kelix_rows_set_attributes(POINTER(1), POINTER(2), (size_t)a[3]); }

static int scan_into(word *a) {
    kelix_range range;
    int code = kelix_scan_into(SESSION, TABLE(1), range_at(a, 4, &range), POINTER(16));
    return code == KELIX_OK ? tell_rows(a, POINTER(16)) : code;
}

static int open_scan(word *a) {
    kelix_range range;
    kelix_scan *scan = NULL;
    int code = kelix_scan_open(SESSION, TABLE(1), range_at(a, 4, &range), &scan);
    a[OUT] = TOLD(scan);
    return code;
}

static int next_rows(word *a) {
    int code = kelix_scan_next_rows(SESSION, POINTER(1), POINTER(2), (uint64_t)a[3]);
    if (code < 0) return code;
    int told = tell_rows(a, POINTER(2));
    return told == KELIX_OK ? code : told;
}

static int next_item(word *a) {
    int code = kelix_scan_next(SESSION, POINTER(1), POINTER(2));
    return code == KELIX_OK ? tell_item(a, POINTER(2)) : code;
}

static int count(word *a) {
    kelix_range range;
    return kelix_count(SESSION, TABLE(1), range_at(a, 4, &range), TOLD_NUMBER);
}

static int estimate(word *a) {
    kelix_range range;
    return kelix_estimate(SESSION, TABLE(1), range_at(a, 4, &range), TOLD_NUMBER);
}

/* ---- many links ---- */

static int new_frontier(word *a) {
    kelix_frontier *frontier = NULL;
    int code = kelix_frontier_new(&frontier);
    a[OUT] = TOLD(frontier);
    return code;
}

static int clear_frontier(word *a) { return kelix_frontier_clear(POINTER(1)); }

static int add_to_frontier(word *a) { return kelix_frontier_add(POINTER(1), TABLE(2), BYTES(5)); }

static int add_links(word *a) {
    size_t added = 0;
    int code = kelix_frontier_add_links(POINTER(1), POINTER(2), BYTES(3), &added);
    a[OUT] = (word)added;
    return code;
}

static int visit(word *a) {
    return kelix_visit(SESSION, POINTER(1), (size_t)a[2], (size_t)a[3], POINTER(4), POINTER(5));
}

static int open_walk(word *a) {
    kelix_walk_options options = {.size = sizeof options,
                                  .from = POINTER(1),
                                  .from_count = (size_t)a[2],
                                  .links = POINTER(3),
                                  .link_count = (size_t)a[4],
                                  .depth = (uint32_t)a[5],
                                  .depth_first = (int)a[6]};
    kelix_walk *walk = NULL;
    int code = kelix_walk_open(SESSION, &options, &walk);
    a[OUT] = TOLD(walk);
    return code;
}

static int next_of_walk(word *a) {
    size_t count = 0;
    int code = kelix_walk_next(SESSION, POINTER(1), POINTER(2), POINTER(3), (size_t)a[4], &count);
    a[OUT] = (word)count;
    return code;
}

static int turn_back(word *a) { return kelix_walk_turn_back(POINTER(1), (uint64_t)a[2]); }

static int walked(word *a) {
    kelix_walked walked = {.size = sizeof walked};
    int code = kelix_walk_about(POINTER(1), &walked);
    a[OUT] = (word)walked.items;
    a[OUT + 1] = (word)walked.gone;
    return code;
}

/* ---- loaded datasets ---- */

static int open_view(word *a) {
    kelix_view *view = NULL;
    int code = kelix_view_open(SESSION, BYTES(1), &view);
    a[OUT] = TOLD(view);
    return code == KELIX_OK ? kelix_view_generation(view, TOLD_NUMBER + 1) : code;
}

static int view_table(word *a) {
    kelix_table table;
    int code = kelix_view_table(POINTER(3), BYTES(1), &table);
    return code == KELIX_OK ? tell_table(a, table) : code;
}

static int open_build(word *a) {
    kelix_build *build = NULL;
    int code = kelix_build_open(SESSION, BYTES(1), POINTER(3), (size_t)a[4], &build);
    a[OUT] = TOLD(build);
    return code;
}

static int build_table(word *a) {
    kelix_table table;
    int code = kelix_build_table(SESSION, POINTER(1), (size_t)a[2], &table);
    return code == KELIX_OK ? tell_table(a, table) : code;
}

static int build_put(word *a) {
    return kelix_build_put(SESSION, POINTER(1), (size_t)a[2], BYTES(4), BYTES(6));
}

static int build_put_item(word *a) {
    int code = fill(POINTER(6), a + 7);
    if (code != KELIX_OK) return code;
    return kelix_build_put_item(SESSION, POINTER(1), (size_t)a[2], BYTES(4), POINTER(6));
}

static int finish_build(word *a) {
    kelix_built built = {.size = sizeof built};
    int code = kelix_build_finish(SESSION, POINTER(1), &built);
    a[OUT] = (word)built.generation;
    a[OUT + 1] = (word)built.items;
    a[OUT + 2] = (word)built.links;
    a[OUT + 3] = (word)built.overlays;
    a[OUT + 4] = (word)built.dangling;
    return code;
}

static int abandon_build(word *a) { return kelix_build_abandon(SESSION, POINTER(1)); }

/* ---- without waiting ---- */

static int submit_get(word *a) { return kelix_submit_get(SESSION, TABLE(1), BYTES(4), NUMBER); }

static int submit_put(word *a) { return kelix_submit_put(SESSION, TABLE(1), BYTES(4), BYTES(6), NUMBER); }

static int submit_delete(word *a) { return kelix_submit_delete(SESSION, TABLE(1), BYTES(4), NUMBER); }

static int submit_compare_and_set(word *a) {
    uint64_t expected = (uint64_t)a[9];
    return kelix_submit_compare_and_set(SESSION, TABLE(1), BYTES(4), a[8] ? &expected : NULL, BYTES(6),
                                        NUMBER);
}

static int submit_compare_and_delete(word *a) {
    return kelix_submit_compare_and_delete(SESSION, TABLE(1), BYTES(4), (uint64_t)a[6], NUMBER);
}

static int submit_put_item(word *a) {
    kelix_write write = {.size = sizeof write, .expect = (int)a[12], .expected = (uint64_t)a[13]};
    int code = fill(POINTER(6), a + 7);
    if (code != KELIX_OK) return code;
    return kelix_submit_put_item(SESSION, TABLE(1), BYTES(4), POINTER(6), &write, NUMBER);
}

static int submit_follow(word *a) { return kelix_submit_follow(SESSION, POINTER(1), BYTES(2), NUMBER); }

static int submit_scan(word *a) {
    kelix_range range;
    return kelix_submit_scan(SESSION, TABLE(1), range_at(a, 4, &range), NUMBER);
}

static int submit_page(word *a) { return kelix_submit_page(SESSION, POINTER(1), NUMBER); }

static int outstanding(word *a) {
    size_t count = 0;
    int code = kelix_outstanding(SESSION, &count);
    a[OUT] = (word)count;
    return code;
}

static int poll_(word *a) {
    size_t count = 0;
    int code = kelix_poll(SESSION, POINTER(1), (size_t)a[2], &count);
    a[OUT] = (word)count;
    return code;
}

static int completion_item(word *a) {
    int code = kelix_completion_item(SESSION, (size_t)a[1], (size_t)a[2], POINTER(3));
    return code == KELIX_OK ? tell_item(a, POINTER(3)) : code;
}

static int completion_scan(word *a) {
    kelix_scan *scan = NULL;
    int code = kelix_completion_scan(SESSION, (size_t)a[1], &scan);
    a[OUT] = TOLD(scan);
    return code;
}

static int completion_error(word *a) {
    const kelix_error *error = NULL;
    int code = kelix_completion_error(SESSION, (size_t)a[1], &error);
    if (code == KELIX_OK) {
        a[OUT] = error->code;
        tell_error(a, error);
    }
    return code;
}

static int new_wake(word *a) {
    a[OUT] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return a[OUT] < 0 ? KELIX_SYSTEM : KELIX_OK;
}

static int wake(word *a) {
    uint64_t one = 1;
    return write((int)a[1], &one, sizeof one) < 0 && errno != EAGAIN ? KELIX_SYSTEM : KELIX_OK;
}

static int close_wake(word *a) { return close((int)a[1]) < 0 ? KELIX_SYSTEM : KELIX_OK; }

/* Waits until one of two descriptors is readable, the first of which may be -1, or a time in milliseconds
 * is over. */
static int wait_(word *a) {
    struct pollfd both[2] = {{.fd = (int)a[1], .events = POLLIN}, {.fd = (int)a[2], .events = POLLIN}};
    uint64_t woken;
    int ready = poll(both, 2, (int)a[3]);
    if (ready < 0 && errno != EINTR) return KELIX_SYSTEM;
    if (ready <= 0 || !both[1].revents) return KELIX_OK;
    return read((int)a[2], &woken, sizeof woken) < 0 && errno != EAGAIN ? KELIX_SYSTEM : KELIX_OK;
}

/* Their names and order are those of the enum Op in Java, which is compared when the library is loaded. */
#define OPERATIONS(_) \
    _(CONNECT, connect_) _(OPEN_SESSION, open_session) _(FABRIC, fabric) _(DESCRIPTOR, descriptor) \
    _(SET_DURABLE, set_durable) _(IS_MIRROR, is_mirror) _(PRIMARY, primary) _(LAG, lag) _(COST, cost) \
    _(STATISTICS, statistics) _(SNAPSHOT, snapshot) \
    _(OPEN_TABLE, open_table) _(CREATE_TABLE, create_table) _(DROP_TABLE, drop_table) \
    _(DROP_DATASET, drop_dataset) _(TABLE_NAME, table_name) _(LIST_TABLES, list_tables) \
    _(TABLE_BY_ID, table_by_id) _(GET, get) _(TRY_GET, try_get) _(GET_RANGE, get_range) _(PUT, put) \
    _(PUT_WITH, put_with) _(DELETE, delete) _(COMPARE_AND_SET, compare_and_set) \
    _(COMPARE_AND_DELETE, compare_and_delete) _(NEW_ITEMS, new_items) _(FREE_ITEMS, free_items) \
    _(ITEM_ABOUT, item_about) _(GET_ITEM, get_item) _(FOLLOW, follow) _(FOLLOW_PATH, follow_path) \
    _(NEW_BUILDER, new_builder) _(PUT_ITEM, put_item) _(NEW_VALUES, new_values) _(MULTI_GET, multi_get) \
    _(MULTI_PUT, multi_put) _(NEW_ROWS, new_rows) _(SET_ATTRIBUTES, set_attributes) \
    _(SCAN_INTO, scan_into) _(OPEN_SCAN, open_scan) _(NEXT_ROWS, next_rows) _(NEXT_ITEM, next_item) \
    _(COUNT, count) _(ESTIMATE, estimate) _(NEW_FRONTIER, new_frontier) _(CLEAR_FRONTIER, clear_frontier) \
    _(ADD_TO_FRONTIER, add_to_frontier) _(ADD_LINKS, add_links) _(VISIT, visit) _(OPEN_WALK, open_walk) \
    _(NEXT_OF_WALK, next_of_walk) _(TURN_BACK, turn_back) _(WALKED, walked) _(OPEN_VIEW, open_view) \
    _(VIEW_TABLE, view_table) _(OPEN_BUILD, open_build) _(BUILD_TABLE, build_table) \
    _(BUILD_PUT, build_put) _(BUILD_PUT_ITEM, build_put_item) _(FINISH_BUILD, finish_build) \
    _(ABANDON_BUILD, abandon_build) _(SUBMIT_GET, submit_get) _(SUBMIT_PUT, submit_put) \
    _(SUBMIT_DELETE, submit_delete) _(SUBMIT_COMPARE_AND_SET, submit_compare_and_set) \
    _(SUBMIT_COMPARE_AND_DELETE, submit_compare_and_delete) _(SUBMIT_PUT_ITEM, submit_put_item) \
    _(SUBMIT_FOLLOW, submit_follow) _(SUBMIT_SCAN, submit_scan) _(SUBMIT_PAGE, submit_page) \
    _(OUTSTANDING, outstanding) _(POLL, poll_) _(COMPLETION_ITEM, completion_item) \
    _(COMPLETION_SCAN, completion_scan) _(COMPLETION_ERROR, completion_error) _(NEW_WAKE, new_wake) \
    _(WAKE, wake) _(CLOSE_WAKE, close_wake) _(WAIT, wait_)

#define FUNCTION(name, function) function,
#define NAME(name, function) #name " "
static int (*const functions[])(word *) = {OPERATIONS(FUNCTION)};
static const char names[] = OPERATIONS(NAME);

/* The names of the operations and the version, each with a zero behind them: address and length. */
EXPORT void kelix_java_about(word block) {
    word *a = (word *)(intptr_t)block;
    tell_bytes(a, 0, (kelix_bytes){names, sizeof names - 1});
    tell_bytes(a, 2, kelix_text(kelix_version()));
}

EXPORT int32_t kelix_java_call(int32_t operation, word block) {
    word *a = (word *)(intptr_t)block;
    int code = functions[operation](a);
    if (code < 0) {
        const kelix_error *error = a[0] ? kelix_last_error(SESSION) : NULL;
        if (!error || error->code != code) error = kelix_last_error(NULL);
        if (error && error->code == code) tell_error(a, error);
        else memset(&a[ERROR], 0, 5 * sizeof(word));
    }
    return code;
}

/* What a get returns: how many bytes it copied, or its code less 1,000, so that all but those are
 * negative. */
static word told(int code, const kelix_got *got) {
    return code == KELIX_OK ? (word)got->bytes : (word)code - 1000;
}

#define POINT(number) ((void *)(intptr_t)(number))
#define GET_ARGUMENTS \
    word session, word table0, word table1, word table2, const void *key, word key_bytes, void *into, \
        word room

/* Not exported, so that both below have it inline. */
static inline word try_get_short(GET_ARGUMENTS) {
    kelix_table table = {{(uint64_t)table0, (uint64_t)table1, (uint64_t)table2}};
    kelix_got got = {.size = sizeof got};
    kelix_bytes of = {key, (size_t)key_bytes};
    int code = kelix_try_get(POINT(session), table, of, into, (size_t)room, &got);
    return told(code, &got);
}

EXPORT word kelix_java_try_get(GET_ARGUMENTS) {
    return try_get_short(session, table0, table1, table2, key, key_bytes, into, room);
}

/* kelix_try_get() has the shorter way, which is taken by nearly all gets in shared memory. */
EXPORT word kelix_java_get(GET_ARGUMENTS) {
    word tried = try_get_short(session, table0, table1, table2, key, key_bytes, into, room);
    if (tried != (word)KELIX_WOULD_WAIT - 1000) return tried;
    kelix_table table = {{(uint64_t)table0, (uint64_t)table1, (uint64_t)table2}};
    kelix_got got = {.size = sizeof got};
    kelix_bytes of = {key, (size_t)key_bytes};
    int code = kelix_get(POINT(session), table, of, into, (size_t)room, &got);
    return told(code, &got);
}

/* The numbers are those of the enum Handle.Kind in Java. */
EXPORT void kelix_java_free(int32_t kind, word handle) {
    void *pointer = (void *)(intptr_t)handle;
    switch (kind) {
        case 0: kelix_client_free(pointer); break;
        case 1: kelix_session_free(pointer); break;
        case 2: kelix_item_free(pointer); break;
        case 3: kelix_item_builder_free(pointer); break;
        case 4: kelix_values_free(pointer); break;
        case 5: kelix_rows_free(pointer); break;
        case 6: kelix_scan_free(pointer); break;
        case 7: kelix_frontier_free(pointer); break;
        case 8: kelix_walk_free(pointer); break;
        case 9: kelix_view_free(pointer); break;
        case 10: kelix_build_free(pointer); break;
    }
}

/* ---- the same for JNI, and what java.lang.foreign has of its own ---- */

#define JAVA(type, name) JNIEXPORT type JNICALL Java_org_kelix_Bridge_##name

JAVA(void, about)(JNIEnv *env, jclass class, jlong block) {
    (void)env, (void)class;
    kelix_java_about(block);
}

JAVA(jint, call)(JNIEnv *env, jclass class, jint operation, jlong block) {
    (void)env, (void)class;
    return kelix_java_call(operation, block);
}

JAVA(jlong, get)(JNIEnv *env, jclass class, jlong session, jlong table0, jlong table1, jlong table2,
                 jlong key, jlong key_bytes, jlong into, jlong room) {
    (void)env, (void)class;
    return kelix_java_get(session, table0, table1, table2, POINT(key), key_bytes, POINT(into), room);
}

JAVA(void, free)(JNIEnv *env, jclass class, jint kind, jlong handle) {
    (void)env, (void)class;
    kelix_java_free(kind, handle);
}

JAVA(jobject, buffer)(JNIEnv *env, jclass class, jlong address, jlong bytes) {
    (void)class;
    return (*env)->NewDirectByteBuffer(env, POINT(address), bytes);
}

JAVA(jlong, address)(JNIEnv *env, jclass class, jobject buffer) {
    (void)class;
    return (jlong)(intptr_t)(*env)->GetDirectBufferAddress(env, buffer);
}

JAVA(void, read)(JNIEnv *env, jclass class, jlong address, jbyteArray into, jint offset, jint length) {
    (void)class;
    (*env)->SetByteArrayRegion(env, into, offset, length, POINT(address));
}
