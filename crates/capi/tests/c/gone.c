/* A server that is killed in a batch: every call ends, with a kind and an effect, and what was read stays right. */

#include <pthread.h>

#include "check.h"
#include "server.h"

enum { KEYS = 256, WIDTH = 8, MOST = 64 };

static char keys[KEYS][WIDTH], values[KEYS][WIDTH];

static kelix_list list_of(const void *data) {
    kelix_list list;
    memset(&list, 0, sizeof list);
    list.size = sizeof list;
    list.count = KEYS;
    list.data = data;
    list.bytes = KEYS * WIDTH;
    list.width = WIDTH;
    return list;
}

/* What a call may end with whose server has gone. */
static int is_loss(int code) {
    return code == KELIX_UNAVAILABLE || code == KELIX_TIMED_OUT || code == KELIX_SUPERSEDED;
}

static pid_t server;
static kelix_session *session, *far;
static kelix_table table;

/* Has the server stand still in the middle of something, sends it puts over TCP, and kills it. */
static void *kill_it(void *ended) {
    kelix_completion completions[MOST];
    size_t at;
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    stop_still(server);
    for (at = 0; at < KEYS; at++) {
        OK(far, kelix_submit_put(far, table, bytes(keys[at], WIDTH), bytes(values[at], WIDTH), at));
    }
    CHECK(kelix_poll(far, completions, MOST, ended) >= 0);
    CHECK(kill(server, SIGKILL) == 0);
    return NULL;
}

static kelix_session *impatient(kelix_client *client) {
    kelix_session *opened = NULL;
    OK(NULL, kelix_session_open(client, NULL, &opened));
    return opened;
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_client *distant = client_at(variable("KELIX_TEST_TCP")), *none = NULL;
    pthread_t killer;
    kelix_list all = list_of(keys), what = list_of(values);
    kelix_completion completions[MOST];
    kelix_values *got = NULL;
    kelix_build *build = NULL;
    kelix_new_table loaded;
    const kelix_error *error;
    static int results[KEYS];
    static uint64_t versions[KEYS];
    size_t count = 0, ended = 0, failed = 0, unknown = 0, at;
    int code, batches = 0;

    server = (pid_t)atol(variable("KELIX_TEST_PID"));
    session = impatient(client);
    far = impatient(distant);
    table = table_of(session, KELIX_HASH, "batch");
    for (at = 0; at < KEYS; at++) {
        char words[16];
        snprintf(words, sizeof words, "k%07u", (unsigned)at);
        memcpy(keys[at], words, WIDTH);
        memcpy(values[at], words, WIDTH);
    }
    OK(session, kelix_multi_put(session, table, &all, &what, NULL, NULL));
    OK(NULL, kelix_values_new(&got));
    memset(&loaded, 0, sizeof loaded);
    loaded.name = text("products");
    OK(session, kelix_build_open(session, text("shop"), &loaded, 1, &build));
    /* Batches of puts, one of which the server does not live to answer: each put has a result of its own. */
    CHECK(pthread_create(&killer, NULL, kill_it, &ended) == 0);
    while ((code = kelix_multi_put(session, table, &all, &what, results, versions)) == KELIX_OK) batches++;
    CHECK(pthread_join(killer, NULL) == 0);
    CHECK(is_loss(code));
    error = kelix_last_error(session);
    CHECK(error->code == code && error->retry == 1);
    for (at = 0; at < KEYS; at++) {
        CHECK(results[at] == KELIX_OK ? versions[at] != 0 : is_loss(results[at]));
    }
    code = kelix_put(session, table, text("key"), text("value"), NULL);
    CHECK(is_loss(code));
    code = kelix_build_finish(session, build, NULL);
    CHECK(code < 0 && kelix_last_error(session)->code == code);
    kelix_build_free(build);

    /* Reads in shared memory go on from the last state. */
    OK(session, kelix_multi_get(session, table, &all, got));
    for (at = 0; at < KEYS; at++) {
        kelix_bytes value;
        OK(NULL, kelix_values_get(got, at, &value, NULL));
        CHECK(value.bytes == WIDTH && memcmp(value.data, values[at], WIDTH) == 0);
    }

    /* Over TCP what was submitted ends, each operation once. Of those that were sent nobody knows the effect. */
    while (ended < KEYS) {
        code = kelix_poll(far, completions, MOST, &count);
        CHECK(code >= 0 && code != KELIX_ABSENT);
        for (at = 0; at < count; at++, ended++) {
            if (completions[at].kind == KELIX_FAILED) {
                CHECK(is_loss(completions[at].result));
                OK(far, kelix_completion_error(far, at, &error));
                CHECK(error->code == completions[at].result);
                CHECK(error->effect == KELIX_EFFECT_UNKNOWN || error->effect == KELIX_EFFECT_NO);
                unknown += error->effect == KELIX_EFFECT_UNKNOWN;
                failed++;
            }
        }
        if (code == KELIX_WOULD_WAIT) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    code = kelix_get(far, table, text("key"), NULL, 0, NULL);
    CHECK(is_loss(code));
    {
        kelix_options options;
        memset(&options, 0, sizeof options);
        options.size = sizeof options;
        options.address = text(variable("KELIX_TEST_DIRECTORY"));
        code = kelix_connect(&options, &none);
        CHECK(is_loss(code) && none == NULL);
    }
    CHECK(failed > 0 && unknown > 0);
    printf("%d batches done; of %d puts over TCP %u failed, %u of unknown effect\n", batches, KEYS,
           (unsigned)failed, (unsigned)unknown);
    kelix_values_free(got);
    kelix_session_free(far);
    kelix_session_free(session);
    kelix_client_free(distant);
    kelix_client_free(client);
    return 0;
}
