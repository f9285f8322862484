/* The script of operations of all languages (tests/script), over shared memory and over TCP. One file, however long, as
 * test programs are, each of which is compiled by itself. */

#include <stdarg.h>

#include "check.h"

enum { WORDS = 16, LINE = 1024, NAMES = 32, KEY = 64 };

/* Where a word's bytes, or an operation's result, stand. */
typedef struct {
    char *data;
    size_t bytes;
} word;

typedef struct {
    char name[32];
    kelix_table table;
} named_table;

static kelix_session *session;
static named_table tables[NAMES];
static size_t table_count;
static struct {
    char name[16];
    uint64_t version;
} versions[NAMES];
static size_t version_count;
static kelix_view *view;
static kelix_build *build;
static char build_names[4][32];
static size_t build_count;
static kelix_rows *rows;
static kelix_values *values;
static kelix_item *item;

/* The result of the operation: words, or the error that it ended with. */
static word results[WORDS];
static size_t result_count;

static void *room_for(size_t count) {
    void *room = malloc(count + 1);
    CHECK(room != NULL);
    return room;
}

static word copy_of(const void *data, size_t count) {
    word made;
    made.data = room_for(count);
    made.bytes = count;
    if (count > 0) memcpy(made.data, data, count);
    made.data[count] = 0;
    return made;
}

static void tell(const void *data, size_t count) {
    CHECK(result_count < WORDS);
    results[result_count++] = copy_of(data, count);
}

static void say(const char *format, ...) {
    char line[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    tell(line, strlen(line));
}

/* Two parts of one result. */
static void tell_both(kelix_bytes first, const char *sign, kelix_bytes second) {
    char line[LINE];
    CHECK(first.bytes + strlen(sign) + second.bytes < sizeof line);
    memcpy(line, first.data, first.bytes);
    memcpy(line + first.bytes, sign, strlen(sign));
    if (second.bytes > 0) memcpy(line + first.bytes + strlen(sign), second.data, second.bytes);
    tell(line, first.bytes + strlen(sign) + second.bytes);
}

static void forget(word *words, size_t *count) {
    while (*count > 0) free(words[--*count].data);
}

static kelix_bytes of(word from) { return bytes(from.data, from.bytes); }

static int same(word from, const char *text) {
    return from.bytes == strlen(text) && memcmp(from.data, text, from.bytes) == 0;
}

static uint64_t number_of(word from) {
    char *end = NULL;
    uint64_t number = strtoull(from.data, &end, 10);
    CHECK(from.bytes > 0 && *end == 0);
    return number;
}

static unsigned char pattern_at(size_t at) { return (unsigned char)(at ^ at >> 8 ^ at >> 16); }

/* The bytes that a word without quotes stands for. */
static word expanded(const char *from, size_t count) {
    word made = copy_of(from, count);
    size_t of_bytes, last, at;
    if (sscanf(made.data, "pattern:%zu", &of_bytes) == 1) {
        last = of_bytes;
    } else if (sscanf(made.data, "tail:%zu:%zu", &of_bytes, &last) != 2) {
        if (sscanf(made.data, "long-key:%zu", &of_bytes) != 1) return made;
        free(made.data);
        made.data = room_for(of_bytes);
        made.bytes = of_bytes;
        memset(made.data, 'k', of_bytes);
        return made;
    }
    free(made.data);
    made.data = room_for(last);
    made.bytes = last;
    for (at = 0; at < last; at++) made.data[at] = (char)pattern_at(of_bytes - last + at);
    return made;
}

static size_t words_of(const char *line, word *words) {
    size_t count = 0;
    while (*line != 0) {
        if (*line == ' ') {
            line++;
            continue;
        }
        CHECK(count < WORDS);
        if (*line == '"') {
            char text[LINE];
            size_t length = 0;
            for (line++; *line != '"'; line++) {
                unsigned byte;
                CHECK(*line != 0 && length < sizeof text);
                if (*line == '\\' && line[1] == 'x') {
                    CHECK(sscanf(line + 2, "%2x", &byte) == 1);
                    text[length++] = (char)byte;
                    line += 3;
                } else {
                    if (*line == '\\') line++;
                    text[length++] = *line;
                }
            }
            line++;
            words[count++] = copy_of(text, length);
        } else {
            size_t length = strcspn(line, " ");
            words[count++] = expanded(line, length);
            line += length;
        }
    }
    return count;
}

/* Splits a word at a sign: what is before and behind. */
static int split(word whole, const char *sign, kelix_bytes *before, kelix_bytes *behind) {
    size_t at, length = strlen(sign);
    for (at = 0; at + length <= whole.bytes; at++) {
        if (memcmp(whole.data + at, sign, length) == 0) {
            *before = bytes(whole.data, at);
            *behind = bytes(whole.data + at + length, whole.bytes - at - length);
            return 1;
        }
    }
    return 0;
}

static word word_of(kelix_bytes from) {
    word made;
    made.data = (char *)from.data;
    made.bytes = from.bytes;
    return made;
}

static int kind_of(kelix_bytes name) {
    const char *names[] = {"hash", "inline", "numbers", "strings"};
    int kind;
    for (kind = KELIX_HASH; kind <= KELIX_STRINGS; kind++) {
        if (is(name, names[kind])) return kind;
    }
    CHECK(!"a kind");
    return -1;
}

/* A table by its name, opened with its first use. */
static int table_named(kelix_bytes name, kelix_table *table) {
    size_t at;
    int code;
    for (at = 0; at < table_count; at++) {
        if (is(name, tables[at].name)) {
            *table = tables[at].table;
            return KELIX_OK;
        }
    }
    code = kelix_table_open(session, name, table);
    if (code == KELIX_OK) {
        CHECK(table_count < NAMES && name.bytes < sizeof tables[0].name);
        snprintf(tables[table_count].name, sizeof tables[0].name, "%.*s", (int)name.bytes, (const char *)name.data);
        tables[table_count++].table = *table;
    }
    return code;
}

static void forget_table(word name) {
    size_t at;
    for (at = 0; at < table_count; at++) {
        if (same(name, tables[at].name)) tables[at] = tables[--table_count];
    }
}

static int has_numbers(kelix_table table) {
    int kind = kelix_table_kind(table);
    return kind == KELIX_INLINE || kind == KELIX_NUMBERS;
}

/* A key of a table; `room` has its bytes where it is a number. */
static kelix_bytes key_of(kelix_table table, kelix_bytes name, char room[8]) {
    size_t at;
    char digits[24];
    if (!has_numbers(table) || name.bytes == 0 || name.bytes >= sizeof digits) return name;
    memcpy(digits, name.data, name.bytes);
    digits[name.bytes] = 0;
    for (at = 0; at < name.bytes; at++) {
        if (digits[at] < '0' || digits[at] > '9') return name;
    }
    return kelix_number(strtoull(digits, NULL, 10), room);
}

/* The same as it is written; `room` has it where it is a number. */
static kelix_bytes shown(kelix_table table, kelix_bytes key, char room[24]) {
    uint64_t number = 0;
    size_t at;
    if (!has_numbers(table) || key.bytes != 8) return key;
    for (at = 0; at < 8; at++) number = number << 8 | ((const unsigned char *)key.data)[at];
    snprintf(room, 24, "%llu", (unsigned long long)number);
    return text(room);
}

static uint64_t *version_named(word name) {
    size_t at;
    for (at = 0; at < version_count; at++) {
        if (same(name, versions[at].name)) return &versions[at].version;
    }
    CHECK(version_count < NAMES && name.bytes < sizeof versions[0].name);
    memcpy(versions[version_count].name, name.data, name.bytes + 1);
    return &versions[version_count++].version;
}

static void say_version(uint64_t version) {
    if (version == 0) {
        say("absent");
    } else {
        say("%llu", (unsigned long long)version);
    }
}

static void all_or_nothing(void) {
    if (result_count == 0) say("nothing");
}

#define TRY(call)                        \
    do {                                 \
        int tried_ = (call);             \
        if (tried_ < 0) return tried_;   \
    } while (0)

static int compared(int code, uint64_t version, int tells_new) {
    TRY(code);
    say(code == KELIX_OK ? "done" : "mismatch");
    if (code != KELIX_OK || tells_new) say_version(version);
    return code;
}

static int range_of(kelix_table table, word *words, size_t count, kelix_range *range, char rooms[2][8]) {
    size_t at;
    memset(range, 0, sizeof *range);
    range->size = sizeof *range;
    for (at = 0; at < count; at++) {
        kelix_bytes name, value;
        if (same(words[at], "backwards")) {
            range->backwards = 1;
            continue;
        }
        CHECK(split(words[at], "=", &name, &value));
        if (is(name, "prefix")) range->prefix = value;
        else if (is(name, "from")) range->start = key_of(table, value, rooms[0]);
        else if (is(name, "to")) range->stop = key_of(table, value, rooms[1]);
        else if (is(name, "limit")) range->limit = number_of(word_of(value));
        else CHECK(!"an option of a scan");
    }
    return KELIX_OK;
}

static void tell_rows(kelix_table table) {
    size_t count = 0, row;
    OK(NULL, kelix_rows_count(rows, &count));
    for (row = 0; row < count; row++) {
        kelix_bytes key, value;
        char room[24];
        OK(NULL, kelix_rows_get(rows, row, &key, &value, NULL));
        tell_both(shown(table, key, room), "=", value);
    }
}

/* Keys one behind the other, as a list; freed by who asked. */
static kelix_list list_of(const kelix_bytes *parts, size_t count, int64_t offsets[WORDS + 1]) {
    kelix_list list;
    size_t at;
    char *data;
    memset(&list, 0, sizeof list);
    list.size = sizeof list;
    for (at = 0, offsets[0] = 0; at < count; at++) offsets[at + 1] = offsets[at] + (int64_t)parts[at].bytes;
    data = room_for((size_t)offsets[count]);
    for (at = 0; at < count; at++) memcpy(data + offsets[at], parts[at].data, parts[at].bytes);
    list.count = count;
    list.data = data;
    list.bytes = (size_t)offsets[count];
    list.offsets = offsets;
    return list;
}

static int of_one_key(const char *name, word *words, size_t count, kelix_table table, kelix_bytes key) {
    kelix_got got;
    int code;
    got.size = sizeof got;
    if (strcmp(name, "put") == 0) {
        kelix_write write;
        uint64_t version = 0;
        size_t at;
        memset(&write, 0, sizeof write);
        write.size = sizeof write;
        for (at = 3; at < count; at++) {
            kelix_bytes option, value;
            CHECK(split(words[at], "=", &option, &value));
            if (is(option, "flags")) write.flags = (uint32_t)number_of(word_of(value));
            else if (is(option, "ends")) write.ends_in_ns = number_of(word_of(value)) * 1000000000u;
            else CHECK(!"an option of a put");
        }
        TRY(count > 3 ? kelix_put_with(session, table, key, of(words[2]), &write, &version)
                      : kelix_put(session, table, key, of(words[2]), &version));
        say_version(version);
    } else if (strcmp(name, "get") == 0) {
        kelix_item_info info;
        TRY(code = kelix_get_item(session, table, key, item));
        if (code == KELIX_ABSENT) {
            say("absent");
        } else {
            info = about(item);
            tell(info.value.data, info.value.bytes);
        }
    } else if (strcmp(name, "version") == 0 || strcmp(name, "flags") == 0 || strcmp(name, "ends") == 0) {
        kelix_item_info info;
        TRY(kelix_get_item(session, table, key, item));
        info = about(item);
        if (name[0] == 'v') say_version(info.version);
        else if (name[0] == 'f') say("%lu", (unsigned long)info.flags);
        else say(info.ends_ns == 0 ? "never" : "later");
    } else if (strcmp(name, "small") == 0 || strcmp(name, "range") == 0) {
        int is_part = name[0] == 'r';
        size_t room = (size_t)number_of(words[is_part ? 3 : 2]);
        char *buffer = room_for(room);
        code = is_part ? kelix_get_range(session, table, key, number_of(words[2]), buffer, room, &got)
                       : kelix_get(session, table, key, buffer, room, &got);
        if (code == KELIX_OK) tell(buffer, (size_t)got.copied);
        if (code == KELIX_OK && is_part) say("%llu", (unsigned long long)got.bytes);
        if (code == KELIX_ABSENT) say("absent");
        free(buffer);
        TRY(code);
    } else if (strcmp(name, "delete") == 0) {
        TRY(code = kelix_delete(session, table, key));
        say(code == KELIX_OK ? "yes" : "no");
    } else if (strcmp(name, "cas") == 0) {
        const uint64_t *expected = same(words[2], "absent") ? NULL : version_named(words[2]);
        uint64_t version = 0;
        code = kelix_compare_and_set(session, table, key, expected, of(words[3]), &version);
        if (code == KELIX_ABSENT) {
            say("mismatch");
            say("absent");
            return code;
        }
        return compared(code, version, 1);
    } else if (strcmp(name, "cad") == 0) {
        uint64_t version = 0;
        code = kelix_compare_and_delete(session, table, key, *version_named(words[2]), &version);
        return compared(code, version, 0);
    } else {
        return 1000;
    }
    return KELIX_OK;
}

static int of_items(const char *name, word *words, size_t count, kelix_table table, kelix_bytes key) {
    int code = KELIX_OK;
    if (strcmp(name, "item") == 0) {
        kelix_item_builder *builder = NULL;
        uint64_t version = 0;
        size_t at;
        OK(NULL, kelix_item_builder_new(&builder));
        for (at = 2; at < count; at++) {
            kelix_bytes attribute, target, of_table, target_key;
            if (split(words[at], "->", &attribute, &target)) {
                kelix_table to;
                char room[8];
                CHECK(split(word_of(target), "/", &of_table, &target_key));
                TRY(table_named(of_table, &to));
                OK(NULL, kelix_item_builder_link(builder, attribute, to, key_of(to, target_key, room), bytes(NULL, 0)));
            } else {
                CHECK(split(words[at], "=", &attribute, &target));
                OK(NULL, kelix_item_builder_bytes(builder, attribute, target));
            }
        }
        code = kelix_put_item(session, table, key, builder, NULL, &version);
        kelix_item_builder_free(builder);
        TRY(code);
        say_version(version);
        return KELIX_OK;
    }
    if (strcmp(name, "walk") == 0) {
        kelix_walk_options options;
        kelix_bytes links[2];
        kelix_place from;
        kelix_walk *walk = NULL;
        kelix_item *items[2];
        size_t arrived = 0, at;
        memset(&options, 0, sizeof options);
        options.size = sizeof options;
        from.table = table;
        from.key = key;
        options.from = &from;
        options.from_count = 1;
        options.links = links;
        options.link_count = split(words[2], ",", &links[0], &links[1]) ? 2 : 1;
        if (options.link_count == 1) links[0] = of(words[2]);
        options.depth = (uint32_t)number_of(words[3]);
        for (at = 0; at < 2; at++) items[at] = new_item();
        TRY(kelix_walk_open(session, &options, &walk));
        while ((code = kelix_walk_next(session, walk, items, NULL, 2, &arrived)) == KELIX_OK) {
            for (at = 0; at < arrived; at++) {
                kelix_item_info info = about(items[at]);
                tell(info.key.data, info.key.bytes);
            }
        }
        kelix_walk_free(walk);
        for (at = 0; at < 2; at++) kelix_item_free(items[at]);
        all_or_nothing();
        return code;
    }
    TRY(code = kelix_get_item(session, table, key, item));
    CHECK(code == KELIX_OK);
    if (strcmp(name, "attribute") == 0) {
        kelix_bytes found;
        TRY(code = kelix_item_bytes(item, of(words[2]), &found));
        if (code == KELIX_OK) tell(found.data, found.bytes);
        else say("absent");
    } else if (strcmp(name, "links") == 0) {
        const kelix_link *links = NULL;
        size_t found = 0, at;
        TRY(kelix_item_links(item, of(words[2]), &links, &found));
        for (at = 0; at < found; at++) {
            kelix_table to;
            kelix_bytes to_name;
            char room[24];
            OK(session, kelix_table_by_id(session, links[at].table_id, &to));
            OK(session, kelix_table_name(session, links[at].table_id, &to_name));
            tell_both(to_name, "/", shown(to, links[at].key, room));
        }
        all_or_nothing();
    } else if (strcmp(name, "follow") == 0) {
        kelix_item_info info;
        TRY(code = kelix_follow(session, item, of(words[2]), item));
        if (code == KELIX_ABSENT) {
            say("absent");
        } else {
            info = about(item);
            tell(info.key.data, info.key.bytes);
        }
    } else {
        return 1000;
    }
    return KELIX_OK;
}

static int of_many_keys(const char *name, word *words, size_t count, kelix_table table) {
    kelix_bytes keys[WORDS], puts[WORDS];
    char number_rooms[WORDS][8], rooms[2][8];
    int64_t offsets[2][WORDS + 1];
    kelix_range range;
    size_t at;
    int code;
    if (strcmp(name, "mget") == 0 || strcmp(name, "mput") == 0) {
        int writes = name[1] == 'p';
        kelix_list key_list, put_list;
        for (at = 1; at < count; at++) {
            kelix_bytes key = of(words[at]);
            if (writes) CHECK(split(words[at], "=", &key, &puts[at - 1]));
            keys[at - 1] = key_of(table, key, number_rooms[at]);
        }
        key_list = list_of(keys, count - 1, offsets[0]);
        if (writes) {
            put_list = list_of(puts, count - 1, offsets[1]);
            code = kelix_multi_put(session, table, &key_list, &put_list, NULL, NULL);
            free((void *)put_list.data);
        } else {
            code = kelix_multi_get(session, table, &key_list, values);
        }
        free((void *)key_list.data);
        TRY(code);
        for (at = 0; !writes && at < count - 1; at++) {
            kelix_bytes value;
            if (kelix_values_get(values, at, &value, NULL) == KELIX_OK) tell(value.data, value.bytes);
            else say("absent");
        }
        if (writes) say("ok");
        all_or_nothing();
    } else if (strcmp(name, "scan") == 0) {
        TRY(range_of(table, words + 1, count - 1, &range, rooms));
        TRY(kelix_scan_into(session, table, &range, rows));
        tell_rows(table);
        all_or_nothing();
    } else if (strcmp(name, "pages") == 0) {
        kelix_scan *scan = NULL;
        TRY(kelix_scan_open(session, table, NULL, &scan));
        do {
            code = kelix_scan_next_rows(session, scan, rows, number_of(words[1]));
            if (code >= 0) tell_rows(table);
        } while (code == KELIX_MORE);
        kelix_scan_free(scan);
        TRY(code);
        all_or_nothing();
    } else if (strcmp(name, "count") == 0) {
        uint64_t counted = 0;
        TRY(range_of(table, words + 1, count - 1, &range, rooms));
        TRY(kelix_count(session, table, &range, &counted));
        say("%llu", (unsigned long long)counted);
    } else if (strcmp(name, "columns") == 0) {
        kelix_bytes column = of(words[1]);
        size_t found = 0;
        OK(NULL, kelix_rows_set_attributes(rows, &column, 1));
        code = kelix_scan_into(session, table, NULL, rows);
        OK(NULL, kelix_rows_count(rows, &found));
        for (at = 0; code == KELIX_OK && at < found; at++) {
            kelix_bytes cell;
            if (kelix_rows_attribute(rows, at, 0, &cell) == KELIX_OK) tell(cell.data, cell.bytes);
            else say("absent");
        }
        OK(NULL, kelix_rows_set_attributes(rows, NULL, 0));
        TRY(code);
    } else if (strcmp(name, "visit") == 0) {
        kelix_frontier *frontier = NULL;
        kelix_item *items[WORDS];
        int found[WORDS];
        OK(NULL, kelix_frontier_new(&frontier));
        for (at = 1; at < count; at++) {
            items[at - 1] = new_item();
            OK(NULL, kelix_frontier_add(frontier, table, key_of(table, of(words[at]), number_rooms[0])));
        }
        code = kelix_visit(session, frontier, 0, count - 1, items, found);
        for (at = 0; at + 1 < count; at++) {
            if (code == KELIX_OK && found[at] == KELIX_OK) {
                kelix_item_info info = about(items[at]);
                tell(info.key.data, info.key.bytes);
            } else {
                say("absent");
            }
            kelix_item_free(items[at]);
        }
        kelix_frontier_free(frontier);
        TRY(code);
    } else {
        return 1000;
    }
    return KELIX_OK;
}

static int of_datasets(const char *name, word *words, size_t count) {
    char room[8];
    size_t at;
    int code;
    if (strcmp(name, "build") == 0) {
        kelix_new_table new_tables[4];
        memset(new_tables, 0, sizeof new_tables);
        build_count = count - 1;
        for (at = 0; at < build_count; at++) {
            kelix_bytes of_kind;
            CHECK(at < 4 && split(words[at + 1], ":", &new_tables[at].name, &of_kind));
            new_tables[at].kind = kind_of(of_kind);
            snprintf(build_names[at], sizeof build_names[at], "%.*s", (int)new_tables[at].name.bytes,
                     (const char *)new_tables[at].name.data);
        }
        TRY(kelix_build_open(session, of(words[0]), new_tables, build_count, &build));
        say("ok");
    } else if (strcmp(name, "bput") == 0) {
        kelix_table table;
        for (at = 0; at < build_count && !same(words[0], build_names[at]); at++) {}
        OK(session, kelix_build_table(session, build, at, &table));
        TRY(kelix_build_put(session, build, at, key_of(table, of(words[1]), room), of(words[2])));
        say("ok");
    } else if (strcmp(name, "finish") == 0) {
        kelix_built built;
        built.size = sizeof built;
        code = kelix_build_finish(session, build, &built);
        kelix_build_free(build);
        TRY(code);
        say("%llu", (unsigned long long)built.items);
    } else if (strcmp(name, "abandon") == 0) {
        code = kelix_build_abandon(session, build);
        kelix_build_free(build);
        TRY(code);
        say("ok");
    } else if (strcmp(name, "forget") == 0) {
        TRY(code = kelix_dataset_drop(session, of(words[0])));
        say(code == KELIX_OK ? "yes" : "no");
    } else if (strcmp(name, "view") == 0) {
        TRY(kelix_view_open(session, of(words[0]), &view));
        say("ok");
    } else if (strcmp(name, "vget") == 0) {
        kelix_table table;
        TRY(kelix_view_table(view, of(words[1]), &table));
        return of_one_key("get", words + 1, 2, table, key_of(table, of(words[2]), room));
    } else if (strcmp(name, "close") == 0) {
        kelix_view_free(view);
        view = NULL;
        say("ok");
    } else {
        return 1000;
    }
    return KELIX_OK;
}

static int submitted(word *words) {
    kelix_table table;
    char room[8];
    kelix_bytes key;
    int puts = same(words[0], "put");
    uint64_t number = number_of(words[puts ? 4 : 3]);
    TRY(table_named(of(words[1]), &table));
    key = key_of(table, of(words[2]), room);
    if (puts) TRY(kelix_submit_put(session, table, key, of(words[3]), number));
    else if (same(words[0], "get")) TRY(kelix_submit_get(session, table, key, number));
    else TRY(kelix_submit_delete(session, table, key, number));
    say("ok");
    return KELIX_OK;
}

static int polled(void) {
    kelix_completion one;
    size_t count = 0;
    int code;
    while ((code = kelix_poll(session, &one, 1, &count)) != KELIX_ABSENT) {
        char own[24];
        TRY(code);
        if (count == 0) continue;
        TRY(one.result);
        snprintf(own, sizeof own, "%llu", (unsigned long long)one.user_data);
        switch (one.kind) {
        case KELIX_WRITTEN: tell_both(text(own), "=", text("written")); break;
        case KELIX_DELETED: tell_both(text(own), "=", text(one.result == KELIX_OK ? "yes" : "no")); break;
        case KELIX_GOT: tell_both(text(own), "=", one.result == KELIX_OK ? one.value : text("absent")); break;
        default: CHECK(!"an outcome that was asked for");
        }
    }
    all_or_nothing();
    return KELIX_OK;
}

/* Names in order. */
static int by_text(const void *one, const void *other) {
    return strcmp(((const word *)one)->data, ((const word *)other)->data);
}

/* Whether `name` is one of the names between spaces. */
static int one_of(const char *name, const char *names) {
    char wanted[32];
    snprintf(wanted, sizeof wanted, " %s ", name);
    return strstr(names, wanted) != NULL;
}

static int run(const char *name, word *words, size_t count) {
    kelix_table table;
    char room[8];
    int code;
    if (strcmp(name, "create") == 0) {
        TRY(kelix_table_create(session, kind_of(of(words[1])), of(words[0]), &table));
        say("ok");
    } else if (strcmp(name, "open") == 0) {
        TRY(kelix_table_open(session, of(words[0]), &table));
        say("ok");
    } else if (strcmp(name, "drop") == 0) {
        TRY(code = kelix_table_drop(session, of(words[0])));
        forget_table(words[0]);
        say(code == KELIX_OK ? "yes" : "no");
    } else if (strcmp(name, "tables") == 0) {
        const kelix_bytes *found = NULL;
        size_t at, names = 0;
        TRY(kelix_table_list(session, &found, &names));
        for (at = 0; at < names; at++) tell(found[at].data, found[at].bytes);
        qsort(results, result_count, sizeof results[0], by_text);
    } else if (strcmp(name, "submit") == 0) {
        return submitted(words);
    } else if (strcmp(name, "poll") == 0) {
        return polled();
    } else if (one_of(name, " build bput finish abandon forget view vget close ")) {
        return of_datasets(name, words, count);
    } else if (one_of(name, " mget mput scan pages count columns visit ")) {
        TRY(table_named(of(words[0]), &table));
        return of_many_keys(name, words, count, table);
    } else {
        TRY(table_named(of(words[0]), &table));
        if (one_of(name, " item walk attribute links follow ")) {
            return of_items(name, words, count, table, key_of(table, of(words[1]), room));
        }
        return of_one_key(name, words, count, table, key_of(table, of(words[1]), room));
    }
    return KELIX_OK;
}

/* Whether the result is the wanted one. Versions of what was written are noted, and others compared. */
static int is_wanted(const char *name, word *wanted, size_t count) {
    int writes = strcmp(name, "put") == 0 || strcmp(name, "item") == 0 || same(wanted[0], "done");
    size_t at;
    if (count != result_count) return 0;
    for (at = 0; at < count; at++) {
        if (wanted[at].bytes > 0 && wanted[at].data[0] == '$') {
            uint64_t *version = version_named(wanted[at]);
            if (writes) *version = number_of(results[at]);
            if (*version != number_of(results[at])) return 0;
        } else if (wanted[at].bytes != results[at].bytes ||
                   memcmp(wanted[at].data, results[at].data, wanted[at].bytes) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Runs a line; says what it brings where something else was wanted. */
static int is_right(const char *line) {
    word call[WORDS], wanted[WORDS];
    size_t call_count, wanted_count, at;
    char before[LINE];
    const char *arrow = strstr(line, " -> ");
    int code, right;
    CHECK(arrow != NULL && (size_t)(arrow - line) < sizeof before);
    memcpy(before, line, (size_t)(arrow - line));
    before[arrow - line] = 0;
    call_count = words_of(before, call);
    wanted_count = words_of(arrow + 4, wanted);
    code = run(call[0].data, call + 1, call_count - 1);
    if (code < 0) {
        const kelix_error *error = kelix_last_error(session);
        CHECK(error != NULL && error->code == code && kelix_kind_name(code) != NULL);
        forget(results, &result_count);
        say("error");
        say("%s", kelix_kind_name(code));
        if (error->needed_bytes != 0) say("%llu", (unsigned long long)error->needed_bytes);
    }
    right = code < 1000 && is_wanted(call[0].data, wanted, wanted_count);
    if (!right) {
        fprintf(stderr, "%s\n    %s", line, code == 1000 ? "there is no such operation" : "it brings");
        for (at = 0; at < result_count; at++) fprintf(stderr, " %.100s", results[at].data);
        fprintf(stderr, "\n");
    }
    forget(results, &result_count);
    forget(call, &call_count);
    forget(wanted, &wanted_count);
    return right;
}

int main(void) {
    const char *ways[] = {"KELIX_TEST_DIRECTORY", "KELIX_TEST_TCP"};
    unsigned way, lines, wrong = 0;
    CHECK(kelix_kind_name(KELIX_OK) == NULL);
    OK(NULL, kelix_rows_new(&rows));
    OK(NULL, kelix_values_new(&values));
    item = new_item();
    for (way = 0; way < 2; way++) {
        kelix_client *client = client_at(variable(ways[way]));
        const kelix_bytes *left = NULL;
        size_t count = 0, at;
        char line[LINE];
        FILE *script = fopen(variable("KELIX_TEST_SCRIPT"), "r");
        CHECK(script != NULL);
        session = session_of(client);
        table_count = version_count = 0;
        for (lines = 0; fgets(line, sizeof line, script) != NULL;) {
            line[strcspn(line, "\n")] = 0;
            if (line[0] == 0 || line[0] == '#') continue;
            lines++;
            wrong += !is_right(line);
        }
        fclose(script);
        CHECK(lines > 100);
        /* The next way begins with nothing. */
        OK(session, kelix_table_list(session, &left, &count));
        for (at = 0; at < count; at++) {
            word name = copy_of(left[at].data, left[at].bytes);
            kelix_session *other = session_of(client);
            OK(other, kelix_table_drop(other, of(name)));
            kelix_session_free(other);
            free(name.data);
        }
        kelix_session_free(session);
        kelix_client_free(client);
    }
    kelix_item_free(item);
    kelix_values_free(values);
    kelix_rows_free(rows);
    CHECK(wrong == 0);
    return 0;
}
