/* Kelix from C: the client of a store in memory whose reads bypass the server. The rules of all functions stand in
 * docs/c.md; what is most to be known:
 *
 * A function returns a number that is not negative (KELIX_OK and so on), or the kind of an error, which is;
 * kelix_last_error() tells the rest. Handles are made and freed by the library. Each serves one call at a time, a client
 * and a name all threads. Structs that are passed begin with their size, and what is zero in them has its default. Names
 * are UTF-8, keys and values any bytes, times nanoseconds.
 *
 * scripts/test-capi --bless makes this file of crates/capi/src. */


#ifndef KELIX_H
#define KELIX_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of the binary interface that this header describes. A program may compare it with kelix_abi().
 */
#define KELIX_ABI 0

/**
 * Done.
 */
#define KELIX_OK 0

/**
 * The key is absent, or what was to come next: there is no more.
 */
#define KELIX_ABSENT 1

/**
 * The key has not the expected version. Nothing was written.
 */
#define KELIX_MISMATCH 2

/**
 * Done, and there is more of it to be had at once.
 */
#define KELIX_MORE 3

/**
 * Nothing can be told without waiting.
 */
#define KELIX_WOULD_WAIT 4

/**
 * An argument breaks a documented limit or makes no sense. Nothing was sent.
 */
#define KELIX_INVALID_ARGUMENT -1

/**
 * The table does not exist.
 */
#define KELIX_NO_SUCH_TABLE -2

/**
 * The item has no such attribute, or it is not of the wanted kind.
 */
#define KELIX_NO_SUCH_ATTRIBUTE -3

/**
 * The caller's memory is smaller than the value.
 */
#define KELIX_BUFFER_TOO_SMALL -4

/**
 * The store has no room, and none comes back by waiting.
 */
#define KELIX_OUT_OF_MEMORY -5

/**
 * No server answers, or it has gone.
 */
#define KELIX_UNAVAILABLE -6

/**
 * The server did not answer in time.
 */
#define KELIX_TIMED_OUT -7

/**
 * Another server has taken over. A session connects to it with its next call, unless the error's `retry` is
 * 0: then what was used has to be got or opened anew.
 */
#define KELIX_SUPERSEDED -8

/**
 * The generation of a loaded table that was being read is not there any more.
 */
#define KELIX_VIEW_EXPIRED -9

/**
 * A loaded table takes no writes for a moment, because its next generation is about to come into force.
 */
#define KELIX_FROZEN -10

/**
 * The other side, or a file, is of another version, byte order or layout.
 */
#define KELIX_INCOMPATIBLE -11

/**
 * A file is not what was written: it was changed, or cut short.
 */
#define KELIX_DAMAGED -12

/**
 * The other side broke the protocol.
 */
#define KELIX_PROTOCOL -13

/**
 * The server does not let this client do that.
 */
#define KELIX_DENIED -14

/**
 * The system refused (permission, descriptors, memory).
 */
#define KELIX_SYSTEM -15

/**
 * The session is of another process, which forked this one: open one here.
 */
#define KELIX_FORKED -16

/**
 * Another call is using the handle, or it stands in two arguments. Nothing was done.
 */
#define KELIX_BUSY -100

/**
 * A fault in the library. The operation may have had an effect; the session can be used on.
 */
#define KELIX_INTERNAL -101

/**
 * The operation did not change the store.
 */
#define KELIX_EFFECT_NO 0

/**
 * It did.
 */
#define KELIX_EFFECT_YES 1

/**
 * It may have: the request may have been delivered, and no answer came.
 */
#define KELIX_EFFECT_UNKNOWN 2

/**
 * Gets look for their item as is best. The default.
 */
#define KELIX_PATH_AUTO 0

/**
 * Gets look for it by cached pointers first.
 */
#define KELIX_PATH_POINTER 1

/**
 * Gets look for it in the index.
 */
#define KELIX_PATH_INDEX 2

/**
 * Gets ask the server by a message.
 */
#define KELIX_PATH_MESSAGE 3

/**
 * Whatever leads to the server, the faster first. The default.
 */
#define KELIX_FABRIC_ANY 0

/**
 * Shared memory.
 */
#define KELIX_FABRIC_SHM 1

/**
 * RDMA.
 */
#define KELIX_FABRIC_VERBS 2

/**
 * TCP.
 */
#define KELIX_FABRIC_TCP 3

/**
 * In kelix_session_options: no memory for copies of models.
 */
#define KELIX_NO_MODELS UINT64_MAX

/**
 * Items by key, without order.
 */
#define KELIX_HASH 0

/**
 * Numbers in order, each with a value of 8 bytes.
 */
#define KELIX_INLINE 1

/**
 * Numbers in order, each with an item.
 */
#define KELIX_NUMBERS 2

/**
 * Byte strings in order, each with an item.
 */
#define KELIX_STRINGS 3

/**
 * Whatever version the key has. The default.
 */
#define KELIX_EXPECT_ANY 0

/**
 * Only if the key is absent.
 */
#define KELIX_EXPECT_ABSENT 1

/**
 * Only if the key has the version that is named beside.
 */
#define KELIX_EXPECT_VERSION 2

/**
 * An attribute is bytes.
 */
#define KELIX_BYTES 0

/**
 * An attribute is a link.
 */
#define KELIX_LINK 1

/**
 * In kelix_value_entry: the key is absent; in kelix_cell: the attribute is.
 */
#define KELIX_NO_VALUE UINT64_MAX

/**
 * In kelix_arrival: no item's link led there, for the walk began there.
 */
#define KELIX_BEGAN_HERE UINT64_MAX

/**
 * The operation failed.
 */
#define KELIX_FAILED 0

/**
 * A get: KELIX_OK, or KELIX_ABSENT.
 */
#define KELIX_GOT 1

/**
 * A put: KELIX_OK.
 */
#define KELIX_WRITTEN 2

/**
 * A delete: KELIX_OK, or KELIX_ABSENT: the key was not there.
 */
#define KELIX_DELETED 3

/**
 * A write of an expected version: KELIX_OK, KELIX_MISMATCH or KELIX_ABSENT, as of kelix_compare_and_set().
 */
#define KELIX_COMPARED 4

/**
 * A page of a scan: KELIX_OK, and it was the last one, or KELIX_MORE.
 */
#define KELIX_PAGE 5

/**
 * A generation that is being built. It is of the session that began it, which can do anything else between.
 */
typedef struct kelix_build kelix_build;

/**
 * A server's clients in this process. Made by kelix_connect(), used by any number of threads at once.
 */
typedef struct kelix_client kelix_client;

/**
 * Where to go next: links out of any number of items, and keys. Their targets are read together. It is made
 * without a session, and read by any session with the server that its tables and items are of.
 */
typedef struct kelix_frontier kelix_frontier;

/**
 * Room for one item: a private, consistent copy of one version. It is filled by kelix_get_item(),
 * kelix_follow() and others, as often as one likes, by any session; what it tells stays until it is filled
 * again or freed.
 */
typedef struct kelix_item kelix_item;

/**
 * An item to be put: a value, or attributes and links; when it ends; and flags. It can be put as often as
 * one likes, and cleared for another one.
 */
typedef struct kelix_item_builder kelix_item_builder;

/**
 * The name of an attribute, which remembers the number that it has in the table whose items were read by it
 * last. So it is compared with one name an item, and not with all that the table has.
 */
typedef struct kelix_name kelix_name;

/**
 * Keys and values of a scan, in memory that is used again from scan to scan. What it tells stays until the
 * next scan, or until it is freed.
 */
typedef struct kelix_rows kelix_rows;

/**
 * A scan that goes on item by item, or page by page. It is of the session that opened it, which can do
 * anything else between.
 */
typedef struct kelix_scan kelix_scan;

/**
 * A way to the store, for one thread at a time; it may go from thread to thread. A call that comes while
 * another thread's is inside returns KELIX_BUSY and does nothing. A session with a server of this host reads
 * the server's memory itself. One whose server has gone goes over to the server that is there by then.
 */
typedef struct kelix_session kelix_session;

/**
 * The values of a batch, in memory that is used again from batch to batch. What it tells stays until the
 * next batch, or until it is freed.
 */
typedef struct kelix_values kelix_values;

/**
 * The tables of a loaded dataset, all of one generation, which stays what it is for as long as the view is
 * there and its session is used now and then.
 */
typedef struct kelix_view kelix_view;

/**
 * A walk along links that is stepped in batches. It is of the session that began it, which can do anything
 * else between.
 */
typedef struct kelix_walk kelix_walk;

/**
 * Bytes of the caller's, or of the library's where it tells something. They need no end. No bytes may have
 * any address, also NULL.
 */
typedef struct kelix_bytes {
    /**
     * Where they begin.
     */
    const void *data;
    /**
     * How many they are.
     */
    size_t bytes;
} kelix_bytes;

/**
 * An error.
 */
typedef struct kelix_error {
    /**
     * What the call returned: the kind, KELIX_INVALID_ARGUMENT and so on.
     */
    int code;
    /**
     * Whether the same call may succeed later (1) or not (0). A write that may have had an effect is for the
     * caller to judge.
     */
    int retry;
    /**
     * Whether the store was changed: KELIX_EFFECT_NO and so on.
     */
    int effect;
    /**
     * The operation that failed. Ends with a zero.
     */
    const char *operation;
    /**
     * What happened and what to do about it, in words. Ends with a zero.
     */
    const char *text;
    /**
     * Of KELIX_BUFFER_TOO_SMALL: how many bytes it takes. Otherwise 0.
     */
    uint64_t needed_bytes;
} kelix_error;

/**
 * How to connect. What is zero has its default.
 */
typedef struct kelix_options {
    /**
     * sizeof(kelix_options).
     */
    size_t size;
    /**
     * The server's run directory, or HOST:PORT. Default: the run directory that servers use when none is
     * named ($KELIX_DIR, else $XDG_RUNTIME_DIR/kelix, else /tmp/kelix-UID).
     */
    struct kelix_bytes address;
    /**
     * The namespace. Default: the one without a name.
     */
    struct kelix_bytes name_space;
    /**
     * A word that the server knows, over TCP.
     */
    struct kelix_bytes token;
    /**
     * A file with certificates, in PEM: speak TLS over TCP, with servers whose certificates these vouch for.
     */
    struct kelix_bytes tls_ca;
    /**
     * Files with a certificate of one's own and its key, in PEM, for servers that ask for one. Both or none.
     */
    struct kelix_bytes tls_cert;
    /**
     * See tls_cert.
     */
    struct kelix_bytes tls_key;
    /**
     * How long the server may take to answer. Default: 900 ms.
     */
    uint64_t timeout_ns;
    /**
     * For how long to try again where no server is. Default: not at all.
     */
    uint64_t retry_ns;
} kelix_options;

/**
 * How to open a session. What is zero has its default.
 */
typedef struct kelix_session_options {
    /**
     * sizeof(kelix_session_options).
     */
    size_t size;
    /**
     * How gets look for their item: KELIX_PATH_AUTO and so on.
     */
    int path;
    /**
     * The fabric to insist on: KELIX_FABRIC_ANY and so on. Opening fails where it cannot be had.
     */
    int fabric;
    /**
     * 1: cached pointers and copies of models are this session's own, and not shared with the user's other
     * processes on this host.
     */
    int private_caches;
    /**
     * 1: writes are on the server's disk before they return. The server has to write a log.
     */
    int durable;
    /**
     * How long a request may take before it fails with an unknown effect, if nothing of it comes meanwhile.
     * Default: 900 ms.
     */
    uint64_t timeout_ns;
    /**
     * For how much longer each operation tries to connect again where the connection is lost. Default: not
     * at all, and at the primary of a cluster 10 s.
     */
    uint64_t retry_ns;
    /**
     * Most queue pairs that this process connects to the server, over verbs. Default: 4.
     */
    size_t queue_pairs;
    /**
     * The address of this host, as text, whose RDMA device is to be used. Default: any.
     */
    struct kelix_bytes rdma_address;
    /**
     * Bytes that copies of the models of each ordered table may have, over TCP and verbs. Default: 64 MiB.
     * KELIX_NO_MODELS: none.
     */
    uint64_t model_bytes;
    /**
     * On a mirror: how old what is read may be. A read that would show what is older fails with
     * KELIX_UNAVAILABLE. Default: as old as the mirror lets it be.
     */
    uint64_t max_lag_ns;
    /**
     * On a mirror, 1: reads are of the mirror whatever it has. Default: what this session has written or
     * seen at the primary is read there until the mirror has it.
     */
    int no_own_writes;
    /**
     * On a mirror, 1: all reads go to the primary, too. At a cluster on several hosts: each is answered by
     * the word of its register, and believes no clock.
     */
    int strict;
} kelix_session_options;

/**
 * What the operations of a session have cost so far.
 */
typedef struct kelix_cost {
    /**
     * sizeof(kelix_cost), set by the caller.
     */
    size_t size;
    /**
     * One-sided reads.
     */
    uint64_t reads;
    /**
     * Bytes that these brought.
     */
    uint64_t read_bytes;
    /**
     * Messages to the server.
     */
    uint64_t messages;
    /**
     * Reads that were repeated because something was being written.
     */
    uint64_t retries;
    /**
     * Reads that became messages.
     */
    uint64_t fallbacks;
} kelix_cost;

/**
 * A snapshot that was taken.
 */
typedef struct kelix_snapshot_taken {
    /**
     * sizeof(kelix_snapshot_taken), set by the caller.
     */
    size_t size;
    /**
     * Its file. The text stays until the session's next call of kelix_statistics(), kelix_snapshot() or
     * kelix_session_primary(), or its end.
     */
    struct kelix_bytes path;
    /**
     * How long the file is.
     */
    uint64_t bytes;
    /**
     * How long it took to write, in seconds.
     */
    double seconds;
} kelix_snapshot_taken;

/**
 * A table of the server that a session is connected to. It is copied as any value, and needs no end; its
 * words are the library's. It serves all sessions with that server, and is refused by others. With a server
 * started later it leads, in the session that opened it by name, to the table of the same name.
 */
typedef struct kelix_table {
    /**
     * The library's.
     */
    uint64_t word[3];
} kelix_table;

/**
 * What a get tells beside the value.
 */
typedef struct kelix_got {
    /**
     * sizeof(kelix_got), set by the caller.
     */
    size_t size;
    /**
     * How many bytes the value has. After KELIX_BUFFER_TOO_SMALL: how many it takes.
     */
    uint64_t bytes;
    /**
     * Its version, for kelix_compare_and_set(). After KELIX_BUFFER_TOO_SMALL: 0.
     */
    uint64_t version;
    /**
     * How many bytes were copied: all of the value, or of kelix_get_range() the part. After
     * KELIX_BUFFER_TOO_SMALL: 0.
     */
    uint64_t copied;
} kelix_got;

/**
 * How to write. What is zero has its default.
 */
typedef struct kelix_write {
    /**
     * sizeof(kelix_write).
     */
    size_t size;
    /**
     * What the item's flags become. They mean nothing to the store.
     */
    uint32_t flags;
    /**
     * When to write: KELIX_EXPECT_ANY and so on.
     */
    int expect;
    /**
     * Of KELIX_EXPECT_VERSION: the version.
     */
    uint64_t expected;
    /**
     * How long after the write the item ends, by the server's clock. 0: not so.
     */
    uint64_t ends_in_ns;
    /**
     * When it ends, in nanoseconds since 1970, by the server's clock. 0: not so. Not both.
     */
    uint64_t ends_at_ns;
} kelix_write;

/**
 * What an item tells of itself.
 */
typedef struct kelix_item_info {
    /**
     * sizeof(kelix_item_info), set by the caller.
     */
    size_t size;
    /**
     * The key.
     */
    struct kelix_bytes key;
    /**
     * The value; of an item with attributes, that without a name (empty if there is none).
     */
    struct kelix_bytes value;
    /**
     * The version.
     */
    uint64_t version;
    /**
     * When it ends, in nanoseconds since 1970. 0: it does not.
     */
    uint64_t ends_ns;
    /**
     * The flags that whoever put it gave it.
     */
    uint32_t flags;
    /**
     * The number of its table, as links tell it.
     */
    uint16_t table_id;
} kelix_item_info;

/**
 * An attribute of an item.
 */
typedef struct kelix_attribute {
    /**
     * Its name. That of a plain item's value is empty.
     */
    struct kelix_bytes name;
    /**
     * Its bytes; of a link its own, an edge's attributes.
     */
    struct kelix_bytes bytes;
    /**
     * Of a link: the key of its target. Otherwise empty.
     */
    struct kelix_bytes key;
    /**
     * KELIX_BYTES or KELIX_LINK.
     */
    int kind;
    /**
     * Of a link: the number of its target's table. Otherwise 0.
     */
    uint16_t table_id;
} kelix_attribute;

/**
 * A link to another item.
 */
typedef struct kelix_link {
    /**
     * The key of its target.
     */
    struct kelix_bytes key;
    /**
     * Its own bytes.
     */
    struct kelix_bytes bytes;
    /**
     * The number of its target's table.
     */
    uint16_t table_id;
} kelix_link;

/**
 * A list of byte strings, keys or values, one behind the other in memory: with offsets (as in Arrow), or
 * each of the same width (as in an array of numpy's).
 */
typedef struct kelix_list {
    /**
     * sizeof(kelix_list).
     */
    size_t size;
    /**
     * How many they are.
     */
    size_t count;
    /**
     * Where they stand.
     */
    const void *data;
    /**
     * How many bytes stand there.
     */
    size_t bytes;
    /**
     * Where each begins in `data`, and where the last one ends: `count` + 1 numbers that never fall, from 0
     * to `bytes`. NULL: each has `width` bytes.
     */
    const int64_t *offsets;
    /**
     * Where `offsets` is NULL: how many bytes each has. Otherwise 0.
     */
    size_t width;
} kelix_list;

/**
 * Where the value of a key stands, and what belongs to it.
 */
typedef struct kelix_value_entry {
    /**
     * Its first byte in the values' data. KELIX_NO_VALUE: the key is absent.
     */
    uint64_t start;
    /**
     * Its length in bytes.
     */
    uint64_t bytes;
    /**
     * The item's version.
     */
    uint64_t version;
    /**
     * When the item ends, in nanoseconds since 1970. 0: it does not.
     */
    uint64_t ends_ns;
    /**
     * The flags that whoever put it gave it.
     */
    uint32_t flags;
    /**
     * Always 0.
     */
    uint32_t reserved;
} kelix_value_entry;

/**
 * Rows of the caller's, an array of numpy's say: one every `stride` bytes, each `width` bytes long.
 */
typedef struct kelix_grid {
    /**
     * sizeof(kelix_grid).
     */
    size_t size;
    /**
     * Where the first row begins.
     */
    void *rows;
    /**
     * How many bytes are there for all rows.
     */
    size_t bytes;
    /**
     * From the beginning of a row to that of the next one: `width` at least.
     */
    size_t stride;
    /**
     * How many bytes a row has.
     */
    size_t width;
    /**
     * A byte a row, which becomes 1, or 0 where the key is absent. NULL: it is not told.
     */
    uint8_t *present;
} kelix_grid;

/**
 * Which keys of a table, and in which order: all of them upwards, unless something else is said. A hash
 * table has no order, so of it only all keys, or the first so many, can be had.
 */
typedef struct kelix_range {
    /**
     * sizeof(kelix_range).
     */
    size_t size;
    /**
     * Only keys that begin with these bytes.
     */
    struct kelix_bytes prefix;
    /**
     * From this key on. Empty: from the first one.
     */
    struct kelix_bytes start;
    /**
     * Up to this key, which is not in the range. Empty: up to the last one.
     */
    struct kelix_bytes stop;
    /**
     * Of a table whose keys are numbers, where `numbers` is 1: the first and the last number of the range.
     */
    uint64_t first;
    /**
     * See first.
     */
    uint64_t last;
    /**
     * No more keys than this. 0: all.
     */
    uint64_t limit;
    /**
     * 1: the range goes from `first` to `last`, both in it. Then there are no start, stop and prefix.
     */
    int numbers;
    /**
     * 1: from the greatest key downwards.
     */
    int backwards;
} kelix_range;

/**
 * Where a key and its value stand, and what belongs to them.
 */
typedef struct kelix_row_entry {
    /**
     * First byte of the key in the rows' data.
     */
    uint64_t key_start;
    /**
     * Length of the key in bytes.
     */
    uint64_t key_bytes;
    /**
     * First byte of the value in the rows' data.
     */
    uint64_t value_start;
    /**
     * Length of the value in bytes.
     */
    uint64_t value_bytes;
    /**
     * The item's version.
     */
    uint64_t version;
    /**
     * When the item ends, in nanoseconds since 1970. 0: it does not.
     */
    uint64_t ends_ns;
    /**
     * The flags that whoever put it gave it.
     */
    uint32_t flags;
    /**
     * Always 0.
     */
    uint32_t reserved;
} kelix_row_entry;

/**
 * A row of a table of the kind KELIX_INLINE.
 */
typedef struct kelix_pair {
    /**
     * The number, its highest byte first.
     */
    uint8_t key[8];
    /**
     * Its value.
     */
    uint8_t value[8];
} kelix_pair;

/**
 * Where an attribute of a row stands.
 */
typedef struct kelix_cell {
    /**
     * First byte of the attribute in the rows' data. KELIX_NO_VALUE: the item has no such bytes.
     */
    uint64_t start;
    /**
     * Length of the attribute in bytes.
     */
    uint64_t bytes;
} kelix_cell;

/**
 * A key of a table, where a walk begins.
 */
typedef struct kelix_place {
    /**
     * The table.
     */
    struct kelix_table table;
    /**
     * The key.
     */
    struct kelix_bytes key;
} kelix_place;

/**
 * Where a walk goes. What is zero has its default.
 */
typedef struct kelix_walk_options {
    /**
     * sizeof(kelix_walk_options).
     */
    size_t size;
    /**
     * Where it begins.
     */
    const struct kelix_place *from;
    /**
     * How many places these are.
     */
    size_t from_count;
    /**
     * Names of the links that it goes along, from any item that has them.
     */
    const struct kelix_bytes *links;
    /**
     * How many names these are.
     */
    size_t link_count;
    /**
     * How many links from where it began. Default: as far as they lead.
     */
    uint32_t depth;
    /**
     * 1: on along the first link before the second one is looked at. Otherwise all that are as far away come
     * before those that are further.
     */
    int depth_first;
} kelix_walk_options;

/**
 * How a walk came to an item, for the first time.
 */
typedef struct kelix_arrival {
    /**
     * How many items were visited before.
     */
    uint64_t number;
    /**
     * The number of the item whose link led here, or KELIX_BEGAN_HERE.
     */
    uint64_t from;
    /**
     * How many links from where the walk began.
     */
    uint32_t depth;
} kelix_arrival;

/**
 * What a walk has come to so far.
 */
typedef struct kelix_walked {
    /**
     * sizeof(kelix_walked), set by the caller.
     */
    size_t size;
    /**
     * Items visited.
     */
    uint64_t items;
    /**
     * Links to items that do not exist (any more), and keys that are absent.
     */
    uint64_t gone;
} kelix_walked;

/**
 * A table of a generation that is to be built.
 */
typedef struct kelix_new_table {
    /**
     * Its name.
     */
    struct kelix_bytes name;
    /**
     * Its kind: KELIX_HASH and so on.
     */
    int kind;
    /**
     * 1: clients may write to it once it is in force.
     */
    int overlay;
} kelix_new_table;

/**
 * What was built.
 */
typedef struct kelix_built {
    /**
     * sizeof(kelix_built), set by the caller.
     */
    size_t size;
    /**
     * The generation's number.
     */
    uint64_t generation;
    /**
     * Items in all tables.
     */
    uint64_t items;
    /**
     * Links in them.
     */
    uint64_t links;
    /**
     * Of the items, those that clients had put into the generation before.
     */
    uint64_t overlays;
    /**
     * Links whose target is not there.
     */
    uint64_t dangling;
} kelix_built;

/**
 * A submitted operation that has ended.
 */
typedef struct kelix_completion {
    /**
     * The number that the caller gave it.
     */
    uint64_t user_data;
    /**
     * What it was: KELIX_GOT and so on, or KELIX_FAILED.
     */
    int kind;
    /**
     * How it ended: as said there, or the kind of its error.
     */
    int result;
    /**
     * Of a get: the item's version. Of a put: the new one. Of KELIX_COMPARED: the new one, or that which the
     * key has. Otherwise 0.
     */
    uint64_t version;
    /**
     * Of a get: the item's value. It stays until the session's next poll.
     */
    struct kelix_bytes value;
    /**
     * How many items it brought: of a get one or none, of a page any number.
     */
    size_t items;
} kelix_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the binary interface of the library in use. With another one than KELIX_ABI nothing else
 * may be called.
 */
uint32_t kelix_abi(void);

/**
 * The release of the library in use, as "0.1.0". It stays for ever.
 */
const char *kelix_version(void);

/**
 * The bytes of a text that ends with a zero; of NULL none. They stay as long as the text.
 */
struct kelix_bytes kelix_text(const char *text);

/**
 * The key of a number, in tables whose keys are numbers: its 8 bytes, the highest first. They are written to
 * `room`, which has 8 bytes, and stay as long as that. With a NULL `room` there are none.
 */
struct kelix_bytes kelix_number(uint64_t number, void *room);

/**
 * The name of a kind of errors, in the words that all languages have for it: "no such table" of
 * KELIX_NO_SUCH_TABLE. NULL: no kind has this number.
 */
const char *kelix_kind_name(int code);

/**
 * The last error of a session, and with NULL the last one of this thread in a call that has no session, or
 * whose session is NULL, no session, or in use. NULL: there was none yet.
 *
 * An error stays until the next call fails: of the session, or of this thread. A session that cannot be
 * asked, because a call is using it, answers with the thread's.
 */
const struct kelix_error *kelix_last_error(const struct kelix_session *session);

/**
 * Finds the server, and makes a client of it. `options` may be NULL: all defaults. On error the client is
 * NULL, and kelix_last_error(NULL) tells why: KELIX_UNAVAILABLE, KELIX_TIMED_OUT, KELIX_DENIED,
 * KELIX_INCOMPATIBLE, KELIX_INVALID_ARGUMENT, KELIX_SYSTEM.
 */
int kelix_connect(const struct kelix_options *options, struct kelix_client **client);

/**
 * Frees a client. NULL is nothing. Sessions that it opened stay. No other thread may be using it.
 */
void kelix_client_free(struct kelix_client *client);

/**
 * Opens a session. `options` may be NULL: all defaults. On error the session is NULL, and
 * kelix_last_error(NULL) tells why, with the kinds of kelix_connect().
 */
int kelix_session_open(const struct kelix_client *client,
                       const struct kelix_session_options *options,
                       struct kelix_session **session);

/**
 * Closes and frees a session. NULL is nothing. One that is in use by another thread stays. Scans, walks,
 * builds and views of it are of no use any more, and are freed as any other; a build is given up.
 */
void kelix_session_free(struct kelix_session *session);

/**
 * The name of the fabric in use: "shm", "verbs" or "tcp". It stays for ever.
 */
int kelix_session_fabric(struct kelix_session *session, struct kelix_bytes *name);

/**
 * The descriptor that becomes readable when answers to submitted operations have arrived. It is the
 * session's: wait for it, and do nothing else with it. A session that connects anew has another one.
 * kelix_poll() says when to wait.
 */
int kelix_session_fd(struct kelix_session *session, int *fd);

/**
 * How many connections a session has had before the one it has: when that has grown, the descriptor of
 * kelix_session_fd() is another one.
 */
int kelix_session_past_connections(struct kelix_session *session, uint32_t *count);

/**
 * Whether writes are on the server's disk before they return, from now on: 1 or 0.
 */
int kelix_session_set_durable(struct kelix_session *session, int durable);

/**
 * Whether the server is a mirror: 1 or 0. Then reads are of the mirror's memory, on this host, and writes go
 * to the primary over a connection that the first of them opens, with the client's own credentials.
 */
int kelix_session_is_mirror(struct kelix_session *session, int *is_mirror);

/**
 * Where the server is that the mirror follows, as HOST:PORT. The text stays until the session's next call of
 * this function, kelix_statistics() or kelix_snapshot(), or its end. KELIX_ABSENT: the server is no mirror.
 */
int kelix_session_primary(struct kelix_session *session, struct kelix_bytes *address);

/**
 * How long ago the mirror is known to have had all that its primary had, in nanoseconds. KELIX_ABSENT: the
 * server is no mirror, or has not heard from its primary yet.
 */
int kelix_session_lag(struct kelix_session *session, uint64_t *lag_ns);

/**
 * Tells what the operations of a session have cost so far.
 */
int kelix_session_cost(struct kelix_session *session, struct kelix_cost *cost);

/**
 * What the server tells of itself, its shards and its clients, as JSON. The text stays until the session's
 * next call of this function, kelix_snapshot() or kelix_session_primary(), or its end.
 */
int kelix_statistics(struct kelix_session *session, struct kelix_bytes *json);

/**
 * Has the server take a snapshot, and waits for it. For the user whose the server is, on its host, by its
 * run directory; the server has to be told where snapshots go. `taken` may be NULL.
 */
int kelix_snapshot(struct kelix_session *session, struct kelix_snapshot_taken *taken);

/**
 * Opens a table that exists. KELIX_NO_SUCH_TABLE: it does not.
 */
int kelix_table_open(struct kelix_session *session, struct kelix_bytes name, struct kelix_table *table);

/**
 * Opens a table of a kind, KELIX_HASH and so on, making it if it does not exist. KELIX_INVALID_ARGUMENT:
 * there is one of another kind, or the name is empty, too long (255 bytes) or has a slash.
 */
int kelix_table_create(struct kelix_session *session,
                       int kind,
                       struct kelix_bytes name,
                       struct kelix_table *table);

/**
 * Drops a table and all that is in it. KELIX_ABSENT: there is no such table.
 */
int kelix_table_drop(struct kelix_session *session, struct kelix_bytes name);

/**
 * Drops a loaded dataset with all its tables. KELIX_ABSENT: there is no such dataset.
 */
int kelix_dataset_drop(struct kelix_session *session, struct kelix_bytes dataset);

/**
 * The name of the table with a number, as items and links tell it. It stays until the session's next call of
 * this function or kelix_table_list(), or its end. KELIX_ABSENT: there is no such table (any more).
 */
int kelix_table_name(struct kelix_session *session, uint16_t id, struct kelix_bytes *name);

/**
 * The names of all tables. They stay until the session's next call of this function or
 * kelix_table_name(), or its end.
 */
int kelix_table_list(struct kelix_session *session, const struct kelix_bytes **names, size_t *count);

/**
 * The table with a number, as links tell it.
 */
int kelix_table_by_id(struct kelix_session *session, uint16_t id, struct kelix_table *table);

/**
 * The number of a table, as items and links tell it.
 */
uint16_t kelix_table_id(struct kelix_table table);

/**
 * The kind of a table: KELIX_HASH and so on.
 */
int kelix_table_kind(struct kelix_table table);

/**
 * Gets the value of a key (of an item with attributes, that of the attribute without a name) into the
 * caller's memory, which has room for `room` bytes. `got` may be NULL. Flags and the end of the item are
 * told by kelix_get_item().
 *
 * KELIX_OK, or KELIX_ABSENT: there is no such key, and nothing is written. KELIX_BUFFER_TOO_SMALL: `got` and
 * the error's `needed_bytes` tell how many bytes it takes; what stands in the memory is of no use.
 */
int kelix_get(struct kelix_session *session,
              struct kelix_table table,
              struct kelix_bytes key,
              void *buffer,
              size_t room,
              struct kelix_got *got);

/**
 * Gets a value as kelix_get() does, if loads from memory are all it takes: it never waits, sends, maps or
 * calls the system, so it may be called where nobody must be kept waiting. KELIX_WOULD_WAIT: call
 * kelix_get(), which does what is due. So it is from time to time for every key, for keys that a hash table
 * does not have, values of more than a few KiB, and wherever the server's memory is not within reach of
 * loads.
 */
int kelix_try_get(struct kelix_session *session,
                  struct kelix_table table,
                  struct kelix_bytes key,
                  void *buffer,
                  size_t room,
                  struct kelix_got *got);

/**
 * Gets a part of a value: from the byte `from` on as much as there is room for, and no bytes behind its end.
 * `got`, which may be NULL, tells how many bytes were copied, how many the whole value has, and its version:
 * parts whose versions are the same are of the same value. Of a value of more than a few KiB only the part
 * is read. KELIX_ABSENT: there is no such key.
 */
int kelix_get_range(struct kelix_session *session,
                    struct kelix_table table,
                    struct kelix_bytes key,
                    uint64_t from,
                    void *buffer,
                    size_t room,
                    struct kelix_got *got);

/**
 * Puts a plain value. `version` may be NULL; otherwise it becomes the key's new version.
 *
 * Errors of writes: KELIX_OUT_OF_MEMORY, KELIX_FROZEN, KELIX_DENIED, and those of a server that does not
 * answer, KELIX_UNAVAILABLE and KELIX_TIMED_OUT; the error's `effect` tells whether it was done.
 */
int kelix_put(struct kelix_session *session,
              struct kelix_table table,
              struct kelix_bytes key,
              struct kelix_bytes value,
              uint64_t *version);

/**
 * Deletes a key. KELIX_ABSENT: it was not there.
 */
int kelix_delete(struct kelix_session *session, struct kelix_table table, struct kelix_bytes key);

/**
 * Puts a plain value if the key's version is still the expected one; `expected` NULL: if it is absent.
 *
 * KELIX_OK, and `version` (which may be NULL) becomes the new one; KELIX_MISMATCH, and it becomes that which
 * the key has; KELIX_ABSENT: the key is not there, though a version was expected.
 */
int kelix_compare_and_set(struct kelix_session *session,
                          struct kelix_table table,
                          struct kelix_bytes key,
                          const uint64_t *expected,
                          struct kelix_bytes value,
                          uint64_t *version);

/**
 * Deletes a key if its version is still the expected one. Results are those of kelix_compare_and_set();
 * after KELIX_OK `version` becomes 0.
 */
int kelix_compare_and_delete(struct kelix_session *session,
                             struct kelix_table table,
                             struct kelix_bytes key,
                             uint64_t expected,
                             uint64_t *version);

/**
 * Puts a plain value with flags and an end, and only if the key is as expected. `write` may be NULL: all
 * defaults, as kelix_put(). Results are those of kelix_compare_and_set().
 */
int kelix_put_with(struct kelix_session *session,
                   struct kelix_table table,
                   struct kelix_bytes key,
                   struct kelix_bytes value,
                   const struct kelix_write *write,
                   uint64_t *version);

/**
 * Makes room for an item.
 */
int kelix_item_new(struct kelix_item **item);

/**
 * Frees an item. NULL is nothing.
 */
void kelix_item_free(struct kelix_item *item);

/**
 * Tells key, value, version, flags and end of an item.
 */
int kelix_item_about(const struct kelix_item *item, struct kelix_item_info *info);

/**
 * The attributes of an item, in order: by index. A plain item has one, without a name. They stay until the
 * item is filled again or freed.
 */
int kelix_item_attributes(const struct kelix_item *item,
                          const struct kelix_attribute **attributes,
                          size_t *count);

/**
 * The first attribute of a name that is bytes; the empty name is the item's value. KELIX_ABSENT: there is
 * none. The bytes stay until the item is filled again or freed.
 */
int kelix_item_bytes(const struct kelix_item *item, struct kelix_bytes name, struct kelix_bytes *bytes);

/**
 * The links under a name, in order; there may be none. They stay until this function is called for the item
 * again, or it is filled again or freed; what they lead to stays as long as the item is not filled again.
 */
int kelix_item_links(const struct kelix_item *item,
                     struct kelix_bytes name,
                     const struct kelix_link **links,
                     size_t *count);

/**
 * Gets an item with its attributes, links, flags and end, in the memory that the handle has. KELIX_ABSENT:
 * there is no such key, and `item` stays as it was. After an error get it again.
 */
int kelix_get_item(struct kelix_session *session,
                   struct kelix_table table,
                   struct kelix_bytes key,
                   struct kelix_item *item);

/**
 * Goes from the item `from` along its first link under a name, and fills `to` with the target. Both may be
 * the same handle; then nothing is allocated, and what was told of the item ends.
 *
 * KELIX_ABSENT: the target does not exist (any more), and `to` stays as it was. KELIX_NO_SUCH_ATTRIBUTE: the
 * item has no such link. KELIX_SUPERSEDED, with `retry` 0: the item is of another server than the session's.
 * Where both are the same handle, get the item again after any error but these two.
 */
int kelix_follow(struct kelix_session *session,
                 const struct kelix_item *from,
                 struct kelix_bytes name,
                 struct kelix_item *to);

/**
 * Goes from the item `from` along the first link under each of these names, one after the other, and fills
 * `to`, another handle, with the last target; without names with the item itself. Otherwise as
 * kelix_follow().
 */
int kelix_follow_path(struct kelix_session *session,
                      const struct kelix_item *from,
                      const struct kelix_bytes *names,
                      size_t count,
                      struct kelix_item *to);

/**
 * Makes the name with this text.
 */
int kelix_name_new(struct kelix_bytes text, struct kelix_name **name);

/**
 * Frees a name. NULL is nothing.
 */
void kelix_name_free(struct kelix_name *name);

/**
 * As kelix_item_bytes(), by a name that was made. Any number of threads may use one.
 */
int kelix_item_bytes_of(const struct kelix_item *item,
                        const struct kelix_name *name,
                        struct kelix_bytes *bytes);

/**
 * As kelix_item_links(), by a name that was made. Any number of threads may use one.
 */
int kelix_item_links_of(const struct kelix_item *item,
                        const struct kelix_name *name,
                        const struct kelix_link **links,
                        size_t *count);

/**
 * Makes an item without attributes.
 */
int kelix_item_builder_new(struct kelix_item_builder **builder);

/**
 * Frees an item builder. NULL is nothing.
 */
void kelix_item_builder_free(struct kelix_item_builder *builder);

/**
 * Takes everything out of an item builder.
 */
int kelix_item_builder_clear(struct kelix_item_builder *builder);

/**
 * Adds bytes under a name. The empty name is the item's plain value; an item with nothing else is a plain
 * key-value item.
 */
int kelix_item_builder_bytes(struct kelix_item_builder *builder,
                             struct kelix_bytes name,
                             struct kelix_bytes bytes);

/**
 * Adds a link under a name, to a key of a table, with bytes of its own (which may be none). Several links
 * under one name make a list. The target need not exist yet.
 */
int kelix_item_builder_link(struct kelix_item_builder *builder,
                            struct kelix_bytes name,
                            struct kelix_table table,
                            struct kelix_bytes key,
                            struct kelix_bytes bytes);

/**
 * Sets the item's flags, which mean nothing to the store. Without, they are 0.
 */
int kelix_item_builder_flags(struct kelix_item_builder *builder, uint32_t flags);

/**
 * Lets the item end so many nanoseconds after it was put, by the server's clock.
 */
int kelix_item_builder_ends_in(struct kelix_item_builder *builder, uint64_t nanoseconds);

/**
 * Lets the item end at a time, in nanoseconds since 1970, by the server's clock: at once if that is over.
 */
int kelix_item_builder_ends_at(struct kelix_item_builder *builder, uint64_t nanoseconds);

/**
 * Puts an item with attributes and links. Of `write`, which may be NULL, only what is expected counts: flags
 * and end are the builder's, and have to be 0 there. Results are those of kelix_compare_and_set(), and
 * KELIX_INVALID_ARGUMENT where the table takes no attributes or a link leads to a key that cannot be.
 */
int kelix_put_item(struct kelix_session *session,
                   struct kelix_table table,
                   struct kelix_bytes key,
                   const struct kelix_item_builder *builder,
                   const struct kelix_write *write,
                   uint64_t *version);

/**
 * Makes room for the values of a batch.
 */
int kelix_values_new(struct kelix_values **values);

/**
 * Frees values. NULL is nothing.
 */
void kelix_values_free(struct kelix_values *values);

/**
 * Gets the values of many keys, whose reads overlap. Each key has an entry in `values`, in order.
 */
int kelix_multi_get(struct kelix_session *session,
                    struct kelix_table table,
                    const struct kelix_list *keys,
                    struct kelix_values *values);

/**
 * How many keys the last batch had.
 */
int kelix_values_count(const struct kelix_values *values, size_t *count);

/**
 * The value of the key with this index in the last batch, and its version; either place may be NULL.
 * KELIX_ABSENT: there is no such key.
 */
int kelix_values_get(const struct kelix_values *values,
                     size_t index,
                     struct kelix_bytes *value,
                     uint64_t *version);

/**
 * All values of the last batch as arrays: `entries` has an entry a key, in order, which tells where its
 * value stands in `data`. Both stay until the next batch, or until the values are freed.
 */
int kelix_values_arrays(const struct kelix_values *values,
                        struct kelix_bytes *data,
                        const struct kelix_value_entry **entries,
                        size_t *count);

/**
 * Gets the values of many keys into rows of the caller's. Behind a shorter value the row is zero, and so is
 * that of a key that is absent; between rows nothing is written.
 *
 * KELIX_BUFFER_TOO_SMALL: a value is longer than a row; the error's `needed_bytes` tells the length of the
 * longest one. KELIX_INVALID_ARGUMENT: rows overlap, or are more than their memory. Nothing is written then.
 */
int kelix_multi_get_rows(struct kelix_session *session,
                         struct kelix_table table,
                         const struct kelix_list *keys,
                         const struct kelix_grid *grid);

/**
 * Puts many plain values, as many as there are keys. `results` and `versions`, each of which may be NULL,
 * have an entry a key, in order: KELIX_OK or the kind of its error, and its new version or 0.
 *
 * KELIX_OK: all were put. Otherwise the first error; others may have been put, as `results` tells. Once the
 * server has failed to answer one, the rest is not sent.
 */
int kelix_multi_put(struct kelix_session *session,
                    struct kelix_table table,
                    const struct kelix_list *keys,
                    const struct kelix_list *values,
                    int *results,
                    uint64_t *versions);

/**
 * Gets the values of many keys, as kelix_multi_get(), and puts many plain values, as kelix_multi_put(), at
 * once: the client reads while the shard writes. A get of a key that is also put finds the value before or
 * after. An error that is no put's is one of the gets; the puts have ended then too, and its effect tells
 * whether one may have been done.
 */
int kelix_multi_get_put(struct kelix_session *session,
                        struct kelix_table table,
                        const struct kelix_list *keys,
                        struct kelix_values *values,
                        const struct kelix_list *put_keys,
                        const struct kelix_list *put_values,
                        int *results,
                        uint64_t *versions);

/**
 * Begins a scan of a table. `range` may be NULL: the whole table. On error the scan is NULL.
 */
int kelix_scan_open(struct kelix_session *session,
                    struct kelix_table table,
                    const struct kelix_range *range,
                    struct kelix_scan **scan);

/**
 * The next item of a scan, with its attributes, links, flags and end. KELIX_ABSENT: that was the last, and
 * `item` stays as it was. A key that is there from the scan's beginning to its end comes exactly once, one
 * that is put or deleted meanwhile at most once. An error ends the scan.
 */
int kelix_scan_next(struct kelix_session *session, struct kelix_scan *scan, struct kelix_item *item);

/**
 * The next keys of a scan and their values, `most` at most and one at least, into rows. KELIX_MORE: there
 * may be more of them. KELIX_OK: these were the last. After an error the scan stands where it stood, and the
 * same call goes on from there.
 */
int kelix_scan_next_rows(struct kelix_session *session,
                         struct kelix_scan *scan,
                         struct kelix_rows *rows,
                         uint64_t most);

/**
 * Frees a scan. NULL is nothing.
 */
void kelix_scan_free(struct kelix_scan *scan);

/**
 * Counts the keys of a range, each once. `range` may be NULL: the whole table.
 */
int kelix_count(struct kelix_session *session,
                struct kelix_table table,
                const struct kelix_range *range,
                uint64_t *count);

/**
 * About how many keys a range has, without a look at each: exact for a few, and for more what leaves have on
 * average. Of a hash table how many keys there are. `range` may be NULL: the whole table.
 */
int kelix_estimate(struct kelix_session *session,
                   struct kelix_table table,
                   const struct kelix_range *range,
                   uint64_t *count);

/**
 * Makes room for the rows of a scan.
 */
int kelix_rows_new(struct kelix_rows **rows);

/**
 * Frees rows. NULL is nothing.
 */
void kelix_rows_free(struct kelix_rows *rows);

/**
 * Scans a range of a table, all of it at once, for keys and values (of items with attributes, that of the
 * attribute without a name). `range` may be NULL: the whole table.
 */
int kelix_scan_into(struct kelix_session *session,
                    struct kelix_table table,
                    const struct kelix_range *range,
                    struct kelix_rows *rows);

/**
 * Names the attributes that scans from now on bring beside each key's value: `count` of them, and none with 0.
 * What the rows tell ends.
 */
int kelix_rows_set_attributes(struct kelix_rows *rows,
                              const struct kelix_bytes *names,
                              size_t count);

/**
 * An attribute of a row, by the row's index and the attribute's place among the names that
 * kelix_rows_set_attributes() was given. KELIX_ABSENT: the item has no such bytes.
 */
int kelix_rows_attribute(const struct kelix_rows *rows,
                         size_t index,
                         size_t attribute,
                         struct kelix_bytes *bytes);

/**
 * How many keys the last scan brought.
 */
int kelix_rows_count(const struct kelix_rows *rows, size_t *count);

/**
 * Key, value and version of a row, by its index; each place may be NULL.
 */
int kelix_rows_get(const struct kelix_rows *rows,
                   size_t index,
                   struct kelix_bytes *key,
                   struct kelix_bytes *value,
                   uint64_t *version);

/**
 * All rows of the last scan as an array, in order. Of a table of the kind KELIX_INLINE it is `pairs`, and
 * `entries` is NULL. Of all others it is `entries`, which tell where keys and values stand in `data`, and
 * `pairs` is NULL. They stay until the next scan, or until the rows are freed. `count` becomes how many rows
 * these are; of none both are NULL.
 */
int kelix_rows_arrays(const struct kelix_rows *rows,
                      struct kelix_bytes *data,
                      const struct kelix_row_entry **entries,
                      const struct kelix_pair **pairs,
                      size_t *count);

/**
 * The attributes of all rows of the last scan as an array, row by row, each with as many cells as
 * kelix_rows_set_attributes() named. They tell where attributes stand in the data of kelix_rows_arrays(),
 * and stay as long as those. `count` becomes how many cells these are.
 */
int kelix_rows_cells(const struct kelix_rows *rows, const struct kelix_cell **cells, size_t *count);

/**
 * Makes a frontier without targets.
 */
int kelix_frontier_new(struct kelix_frontier **frontier);

/**
 * Frees a frontier. NULL is nothing.
 */
void kelix_frontier_free(struct kelix_frontier *frontier);

/**
 * Takes all targets out; the memory is used again.
 */
int kelix_frontier_clear(struct kelix_frontier *frontier);

/**
 * Adds an item by its key.
 */
int kelix_frontier_add(struct kelix_frontier *frontier, struct kelix_table table, struct kelix_bytes key);

/**
 * Adds the targets of an item's links under a name, in order. `added`, which may be NULL, becomes how many
 * that are.
 */
int kelix_frontier_add_links(struct kelix_frontier *frontier,
                             const struct kelix_item *item,
                             struct kelix_bytes name,
                             size_t *added);

/**
 * How many targets a frontier has.
 */
int kelix_frontier_count(const struct kelix_frontier *frontier, size_t *count);

/**
 * The number of the table, and the key, of a target, by its index; either place may be NULL. The key stays
 * until the frontier is changed or freed.
 */
int kelix_frontier_target(const struct kelix_frontier *frontier,
                          size_t index,
                          uint16_t *table_id,
                          struct kelix_bytes *key);

/**
 * Reads what `count` targets of a frontier lead to, from the one with the index `first` on, their reads
 * overlapping: each into the item of the same place in `items`, which are `count` different ones. `results`,
 * which may be NULL, has an entry each: KELIX_OK, or KELIX_ABSENT where the target does not exist (any
 * more), and its item stays as it was.
 */
int kelix_visit(struct kelix_session *session,
                const struct kelix_frontier *frontier,
                size_t first,
                size_t count,
                struct kelix_item *const *items,
                int *results);

/**
 * Begins a walk. On error it is NULL.
 */
int kelix_walk_open(struct kelix_session *session,
                    const struct kelix_walk_options *options,
                    struct kelix_walk **walk);

/**
 * The next items of a walk, `most` at most: into `items`, which are `most` different ones, and how each was
 * come to into `arrivals`, which may be NULL. `count` becomes how many they are. Breadth-first they are read
 * together; depth-first they come one at a time.
 *
 * KELIX_OK, or KELIX_ABSENT: the walk is over, and `count` 0. After an error the same call goes on where the
 * walk was. The walk goes on along the links of each item, but for those that kelix_walk_turn_back() names
 * before the next call.
 */
int kelix_walk_next(struct kelix_session *session,
                    struct kelix_walk *walk,
                    struct kelix_item *const *items,
                    struct kelix_arrival *arrivals,
                    size_t most,
                    size_t *count);

/**
 * Lets a walk not go along the links of an item of the last step, which has this number.
 */
int kelix_walk_turn_back(struct kelix_walk *walk, uint64_t number);

/**
 * Tells what a walk has come to so far.
 */
int kelix_walk_about(const struct kelix_walk *walk, struct kelix_walked *walked);

/**
 * Frees a walk. NULL is nothing.
 */
void kelix_walk_free(struct kelix_walk *walk);

/**
 * Opens a view of the generation of a dataset that is in force. KELIX_NO_SUCH_TABLE: there is no such
 * dataset. On error the view is NULL.
 */
int kelix_view_open(struct kelix_session *session, struct kelix_bytes dataset, struct kelix_view **view);

/**
 * A table of a view, for reads by the session that opened the view. KELIX_NO_SUCH_TABLE: the generation has
 * none of this name. Reads of a generation that is gone fail with KELIX_VIEW_EXPIRED.
 */
int kelix_view_table(const struct kelix_view *view, struct kelix_bytes name, struct kelix_table *table);

/**
 * The number of a view's generation.
 */
int kelix_view_generation(const struct kelix_view *view, uint64_t *generation);

/**
 * Closes and frees a view. NULL is nothing. When a session has no view of a generation any more, it lets
 * that go.
 */
void kelix_view_free(struct kelix_view *view);

/**
 * Begins to build a generation of a dataset, with `count` tables, which are named by their index from then
 * on. Nobody sees it until kelix_build_finish(). KELIX_INVALID_ARGUMENT: another one of the dataset is being
 * built, or a name is taken. On error the build is NULL.
 */
int kelix_build_open(struct kelix_session *session,
                     struct kelix_bytes dataset,
                     const struct kelix_new_table *tables,
                     size_t count,
                     struct kelix_build **build);

/**
 * A table of a build, by its index: to name it in links, and to read it before others can.
 */
int kelix_build_table(struct kelix_session *session,
                      struct kelix_build *build,
                      size_t index,
                      struct kelix_table *table);

/**
 * Puts a plain value into a table of a build. Errors may be told by a later call, since items are sent
 * together.
 */
int kelix_build_put(struct kelix_session *session,
                    struct kelix_build *build,
                    size_t index,
                    struct kelix_bytes key,
                    struct kelix_bytes value);

/**
 * Puts an item with attributes and links into a table of a build. Targets of links may come later.
 */
int kelix_build_put_item(struct kelix_session *session,
                         struct kelix_build *build,
                         size_t index,
                         struct kelix_bytes key,
                         const struct kelix_item_builder *item);

/**
 * Puts the generation in force, at once for all readers, when all of its items are there. `built` may be
 * NULL. The build is over then, also after an error, and is still to be freed.
 */
int kelix_build_finish(struct kelix_session *session, struct kelix_build *build, struct kelix_built *built);

/**
 * Gives a build up: it leaves nothing behind. It is over then, and is still to be freed.
 */
int kelix_build_abandon(struct kelix_session *session, struct kelix_build *build);

/**
 * Frees a build. NULL is nothing. One that is neither finished nor abandoned is given up when its session
 * ends.
 */
void kelix_build_free(struct kelix_build *build);

/**
 * Submits a get of an item. It begins with the next kelix_poll(), together with all others submitted until
 * then; `user_data` is the caller's number for it, which its completion has. KELIX_INVALID_ARGUMENT: the key
 * cannot be; then there is no completion, as after any error of the functions that submit.
 */
int kelix_submit_get(struct kelix_session *session,
                     struct kelix_table table,
                     struct kelix_bytes key,
                     uint64_t user_data);

/**
 * Submits a put of a plain value, which is copied.
 */
int kelix_submit_put(struct kelix_session *session,
                     struct kelix_table table,
                     struct kelix_bytes key,
                     struct kelix_bytes value,
                     uint64_t user_data);

/**
 * Submits a delete.
 */
int kelix_submit_delete(struct kelix_session *session,
                        struct kelix_table table,
                        struct kelix_bytes key,
                        uint64_t user_data);

/**
 * Submits a put of a plain value that is done if the key's version is still the expected one; `expected`
 * NULL: if it is absent.
 */
int kelix_submit_compare_and_set(struct kelix_session *session,
                                 struct kelix_table table,
                                 struct kelix_bytes key,
                                 const uint64_t *expected,
                                 struct kelix_bytes value,
                                 uint64_t user_data);

/**
 * Submits a delete that is done if the key's version is still the expected one.
 */
int kelix_submit_compare_and_delete(struct kelix_session *session,
                                    struct kelix_table table,
                                    struct kelix_bytes key,
                                    uint64_t expected,
                                    uint64_t user_data);

/**
 * Submits a put of an item with attributes and links, which is copied. Of `write`, which may be NULL, only
 * what is expected counts, as of kelix_put_item(). It ends as KELIX_WRITTEN, or as KELIX_COMPARED where
 * something is expected.
 */
int kelix_submit_put_item(struct kelix_session *session,
                          struct kelix_table table,
                          struct kelix_bytes key,
                          const struct kelix_item_builder *builder,
                          const struct kelix_write *write,
                          uint64_t user_data);

/**
 * Submits the read along an item's first link under a name, as kelix_follow() does it. It ends as KELIX_GOT.
 * KELIX_NO_SUCH_ATTRIBUTE: the item has no such link.
 */
int kelix_submit_follow(struct kelix_session *session,
                        const struct kelix_item *from,
                        struct kelix_bytes name,
                        uint64_t user_data);

/**
 * Submits the reads of `count` targets of a frontier, from the one with the index `first` on, as
 * kelix_visit() does them. Each ends by itself, as KELIX_GOT; their numbers are `user_data` and those behind
 * it, in the order of the targets.
 */
int kelix_submit_visit(struct kelix_session *session,
                       const struct kelix_frontier *frontier,
                       size_t first,
                       size_t count,
                       uint64_t user_data);

/**
 * Submits the first page of a scan. `range` may be NULL: the whole table.
 */
int kelix_submit_scan(struct kelix_session *session,
                      struct kelix_table table,
                      const struct kelix_range *range,
                      uint64_t user_data);

/**
 * Submits the next page of a scan: of the rest of a page that was submitted, or of one that was opened. The
 * scan is of no further use then, and is still to be freed.
 */
int kelix_submit_page(struct kelix_session *session, struct kelix_scan *scan, uint64_t user_data);

/**
 * How many submitted operations were not told by kelix_poll() yet.
 */
int kelix_outstanding(struct kelix_session *session, size_t *count);

/**
 * Begins what was submitted, and tells what has ended, `most` operations at most, into `completions`;
 * `count` becomes how many they are. It waits only to send a value that does not fit one message, and to map
 * memory that is new.
 *
 * KELIX_OK: that is all that has ended. KELIX_MORE: there may be more, so poll again. KELIX_WOULD_WAIT:
 * nothing has, and something is under way: wait until the descriptor of kelix_session_fd() is readable, with
 * a time-out, since an operation that is not answered in time ends with the next poll after that.
 * KELIX_ABSENT: nothing is under way.
 */
int kelix_poll(struct kelix_session *session,
               struct kelix_completion *completions,
               size_t most,
               size_t *count);

/**
 * Takes an item that an operation brought which the last poll told: that of a get, or one of a page. `index`
 * is the place of its completion, `number` the item's from 0 on.
 */
int kelix_completion_item(struct kelix_session *session,
                          size_t index,
                          size_t number,
                          struct kelix_item *item);

/**
 * What is left of a scan behind a page that the last poll told, for kelix_submit_page() or
 * kelix_scan_next(). KELIX_ABSENT: nothing is, and the scan becomes NULL.
 */
int kelix_completion_scan(struct kelix_session *session, size_t index, struct kelix_scan **scan);

/**
 * The error of an operation that the last poll told. It stays until the session's next poll. KELIX_ABSENT:
 * it did not fail, and the error becomes NULL.
 */
int kelix_completion_error(struct kelix_session *session, size_t index, const struct kelix_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KELIX_H */
