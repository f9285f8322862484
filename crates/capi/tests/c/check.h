/* What the test programs share: checks, and a server to talk to.
 *
 * scripts/test-capi starts a server for each program, and names it by three variables: KELIX_TEST_DIRECTORY, its
 * run directory; KELIX_TEST_TCP, HOST:PORT where it also listens; KELIX_TEST_PID, its process. The program `mirror`
 * has a mirror of it, too: KELIX_TEST_MIRROR, its run directory; KELIX_TEST_MIRROR_PID, its process. */

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kelix.h"

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* A call of a session returns a code, which is told with its error if it is another one. */
#define RETURNS(session, code, call)                                                      \
    do {                                                                                  \
        int returned_ = (call);                                                           \
        if (returned_ != (code)) {                                                        \
            const kelix_error *error_ = kelix_last_error(session);                        \
            fprintf(stderr, "%s:%d: %s returned %d, not %d: %s\n", __FILE__, __LINE__,    \
                    #call, returned_, (code), error_ ? error_->text : "no error");        \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define OK(session, call) RETURNS(session, KELIX_OK, call)

/* A refusal has a code, and so has the error of the session (NULL: of the thread), with words. */
#define REFUSED(session, wanted, call)                                                    \
    do {                                                                                  \
        const kelix_error *error_;                                                        \
        RETURNS(session, wanted, call);                                                   \
        error_ = kelix_last_error(session);                                               \
        CHECK(error_ != NULL && error_->code == (wanted));                                \
        CHECK(error_->text[0] != 0 && error_->operation[0] != 0);                         \
    } while (0)

static inline const char *variable(const char *name) {
    const char *value = getenv(name);
    if (value == NULL) {
        fprintf(stderr, "%s is not set: scripts/test-capi runs this program\n", name);
        exit(2);
    }
    return value;
}

static inline kelix_bytes text(const char *words) { return kelix_text(words); }

static inline kelix_bytes bytes(const void *data, size_t count) {
    kelix_bytes all;
    all.data = data;
    all.bytes = count;
    return all;
}

static inline int is(kelix_bytes found, const char *words) {
    return found.bytes == strlen(words) && memcmp(found.data, words, found.bytes) == 0;
}

/* A client at an address. Machines that run tests are busy, so it is patient. */
static inline kelix_client *client_at(const char *address) {
    kelix_options options;
    kelix_client *client = NULL;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.address = text(address);
    options.timeout_ns = 20000000000u;
    OK(NULL, kelix_connect(&options, &client));
    CHECK(client != NULL);
    return client;
}

static inline kelix_session *session_of(kelix_client *client) {
    kelix_session_options options;
    kelix_session *session = NULL;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.timeout_ns = 20000000000u;
    OK(NULL, kelix_session_open(client, &options, &session));
    CHECK(session != NULL);
    return session;
}

static inline kelix_table table_of(kelix_session *session, int kind, const char *name) {
    kelix_table table;
    OK(session, kelix_table_create(session, kind, text(name), &table));
    return table;
}

static inline void put(kelix_session *session, kelix_table table, const char *key, const char *value) {
    OK(session, kelix_put(session, table, text(key), text(value), NULL));
}

static inline kelix_item *new_item(void) {
    kelix_item *item = NULL;
    OK(NULL, kelix_item_new(&item));
    return item;
}

static inline kelix_item_info about(const kelix_item *item) {
    kelix_item_info info;
    info.size = sizeof info;
    OK(NULL, kelix_item_about(item, &info));
    return info;
}

#endif
