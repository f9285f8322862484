/* Sessions on a mirror: what they tell of it, and what their options have them read. */

#include "check.h"
#include "server.h"

static kelix_session_options patient(void) {
    kelix_session_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.timeout_ns = 20000000000u;
    return options;
}

static kelix_session *with(kelix_client *client, kelix_session_options options) {
    kelix_session *session = NULL;
    OK(NULL, kelix_session_open(client, &options, &session));
    return session;
}

static int has(kelix_session *session, kelix_table table, const char *value) {
    char buffer[16];
    kelix_got got;
    got.size = sizeof got;
    OK(session, kelix_get(session, table, text("key"), buffer, sizeof buffer, &got));
    return is(bytes(buffer, got.bytes), value);
}

static pid_t process(const char *name) { return (pid_t)atol(variable(name)); }

static void told(kelix_session *near, kelix_session *primary) {
    kelix_bytes address;
    uint64_t lag_ns = 0;
    int is_mirror = -1;
    OK(near, kelix_session_is_mirror(near, &is_mirror));
    CHECK(is_mirror == 1);
    OK(near, kelix_session_primary(near, &address));
    CHECK(is(address, variable("KELIX_TEST_TCP")));
    OK(near, kelix_session_lag(near, &lag_ns));
    OK(primary, kelix_session_is_mirror(primary, &is_mirror));
    CHECK(is_mirror == 0);
    RETURNS(primary, KELIX_ABSENT, kelix_session_primary(primary, &address));
    CHECK(address.bytes == 0);
    RETURNS(primary, KELIX_ABSENT, kelix_session_lag(primary, &lag_ns));
    REFUSED(near, KELIX_INVALID_ARGUMENT, kelix_session_is_mirror(near, NULL));
    REFUSED(near, KELIX_INVALID_ARGUMENT, kelix_session_primary(near, NULL));
    REFUSED(near, KELIX_INVALID_ARGUMENT, kelix_session_lag(near, NULL));
}

static void refused(kelix_client *client) {
    kelix_session_options options = patient();
    kelix_session *session = NULL;
    options.no_own_writes = 2;
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_session_open(client, &options, &session));
    options.no_own_writes = 0;
    options.strict = -1;
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_session_open(client, &options, &session));
}

int main(void) {
    kelix_client *at_mirror = client_at(variable("KELIX_TEST_MIRROR"));
    kelix_client *at_primary = client_at(variable("KELIX_TEST_DIRECTORY"));
    pid_t mirror = process("KELIX_TEST_MIRROR_PID"), server = process("KELIX_TEST_PID");
    kelix_session_options options = patient();
    kelix_session *usual = with(at_mirror, options), *primary = with(at_primary, options);
    kelix_session *here, *strict, *limited;
    kelix_table table = table_of(usual, KELIX_HASH, "table"), here_table, strict_table, limited_table;
    char buffer[16];
    int code;

    options.no_own_writes = 1;
    here = with(at_mirror, options);
    options.no_own_writes = 0;
    options.strict = 1;
    strict = with(at_mirror, options);
    options.strict = 0;
    options.max_lag_ns = 200000000;
    limited = with(at_mirror, options);
    refused(at_mirror);
    told(usual, primary);

    put(usual, table, "key", "old");
    strict_table = table_of(strict, KELIX_HASH, "table");
    /* What others have written comes to the mirror after a while. */
    while ((code = kelix_table_open(here, text("table"), &here_table)) == KELIX_NO_SUCH_TABLE) continue;
    OK(here, code);
    while (kelix_get(here, here_table, text("key"), buffer, sizeof buffer, NULL) == KELIX_ABSENT) continue;
    while ((code = kelix_table_open(limited, text("table"), &limited_table)) == KELIX_UNAVAILABLE) continue;
    OK(limited, code);

    /* A mirror that stands still does not have what is written now. */
    stop_still(mirror);
    put(usual, table, "key", "new");
    CHECK(has(usual, table, "new"));
    CHECK(has(strict, strict_table, "new"));
    CHECK(has(here, here_table, "old"));
    do {
        code = kelix_get(limited, limited_table, text("key"), buffer, sizeof buffer, NULL);
    } while (code == KELIX_OK);
    REFUSED(limited, KELIX_UNAVAILABLE, code);
    CHECK(kill(mirror, SIGCONT) == 0);
    while (!has(here, here_table, "new")) continue;

    /* Without its primary a mirror shows what it has. */
    stop_still(server);
    CHECK(has(here, here_table, "new"));
    while (kelix_get(limited, limited_table, text("key"), buffer, sizeof buffer, NULL) == KELIX_OK) continue;
    CHECK(kelix_last_error(limited)->code == KELIX_UNAVAILABLE);
    CHECK(kill(server, SIGCONT) == 0);

    kelix_session_free(limited);
    kelix_session_free(strict);
    kelix_session_free(here);
    kelix_session_free(primary);
    kelix_session_free(usual);
    kelix_client_free(at_primary);
    kelix_client_free(at_mirror);
    return 0;
}
