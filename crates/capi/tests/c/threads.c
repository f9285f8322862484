/* Threads: each has a session of its own; two in one session are told so, and nothing is torn. */

#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "server.h"

enum { THREADS = 4, ROUNDS = 2000 };

static kelix_client *client;
static kelix_session *shared;
static kelix_table table;

static void *in_own_session(void *number) {
    kelix_session *session = session_of(client);
    kelix_table own = table_of(session, KELIX_HASH, "threads");
    char key[16], buffer[16];
    kelix_got got;
    unsigned round;
    got.size = sizeof got;
    snprintf(key, sizeof key, "thread%d", *(int *)number);
    for (round = 0; round < ROUNDS; round++) {
        put(session, own, key, key);
        OK(session, kelix_get(session, own, text(key), buffer, sizeof buffer, &got));
        CHECK(got.bytes == strlen(key) && memcmp(buffer, key, got.bytes) == 0);
    }
    kelix_session_free(session);
    return NULL;
}

/* Does so many calls in the session that others use, too, and again what was refused. */
static void *in_shared_session(void *refused) {
    char buffer[16];
    unsigned done = 0;
    while (done < ROUNDS) {
        kelix_got got;
        int code;
        got.size = sizeof got;
        if (done % 2 == 0) {
            code = kelix_get(shared, table, text("key"), buffer, sizeof buffer, &got);
            CHECK(code == KELIX_BUSY || (got.bytes == 5 && memcmp(buffer, "value", 5) == 0));
        } else {
            code = kelix_put(shared, table, text("key"), text("value"), NULL);
        }
        CHECK(code == KELIX_OK || code == KELIX_BUSY);
        done += code == KELIX_OK;
        *(unsigned *)refused += code == KELIX_BUSY;
        if (code == KELIX_BUSY) sched_yield();
    }
    return NULL;
}

/* Puts, once the other thread is not inside just then. */
static void *puts_once(void *code) {
    do {
        *(int *)code = kelix_put(shared, table, text("key"), text("value"), NULL);
    } while (*(int *)code == KELIX_BUSY);
    return NULL;
}

/* While a call waits for a server that stands still, each other one is refused, and frees nothing. */
static void while_one_waits(void) {
    pid_t server = (pid_t)atol(variable("KELIX_TEST_PID"));
    const kelix_error *error;
    pthread_t thread;
    int code = -1000, seen, fd;
    stop_still(server);
    CHECK(pthread_create(&thread, NULL, puts_once, &code) == 0);
    while ((seen = kelix_session_fd(shared, &fd)) == KELIX_OK) sched_yield();
    CHECK(seen == KELIX_BUSY);
    error = kelix_last_error(NULL);
    CHECK(error->code == KELIX_BUSY && error->retry == 1 && error->effect == KELIX_EFFECT_NO);
    CHECK(kelix_last_error(shared) == error);
    kelix_session_free(shared);
    RETURNS(NULL, KELIX_BUSY, kelix_put(shared, table, text("key"), text("value"), NULL));
    CHECK(kill(server, SIGCONT) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(code == KELIX_OK);
}

int main(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS], at;
    unsigned refused[THREADS] = {0}, all = 0;
    client = client_at(variable("KELIX_TEST_DIRECTORY"));
    shared = session_of(client);
    table = table_of(shared, KELIX_HASH, "shared");
    put(shared, table, "key", "value");
    for (at = 0; at < THREADS; at++) {
        numbers[at] = at;
        CHECK(pthread_create(&threads[at], NULL, in_own_session, &numbers[at]) == 0);
    }
    for (at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);

    for (at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&threads[at], NULL, in_shared_session, &refused[at]) == 0);
    }
    for (at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
        all += refused[at];
    }
    printf("%d calls done, %u refused\n", THREADS * ROUNDS, all);
    while_one_waits();
    /* The session goes on, in whichever thread. */
    put(shared, table, "key", "value");
    kelix_session_free(shared);
    kelix_client_free(client);
    return 0;
}
