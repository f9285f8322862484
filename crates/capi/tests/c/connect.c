/* Clients and sessions: addresses, fabrics, what is refused; statistics, snapshots, durable writes. */

#include "check.h"

static kelix_options at(const char *address) {
    kelix_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.address = text(address);
    return options;
}

static void refused(const kelix_options *options, int code) {
    kelix_client *client = (kelix_client *)1;
    REFUSED(NULL, code, kelix_connect(options, &client));
    CHECK(client == NULL);
    CHECK(kelix_last_error(NULL)->effect == KELIX_EFFECT_NO);
}

static void nobody_there(void) {
    kelix_options options = at("/nonexistent/kelix");
    refused(&options, KELIX_UNAVAILABLE);
    CHECK(kelix_last_error(NULL)->retry == 1);
    options = at("127.0.0.1:1");
    refused(&options, KELIX_UNAVAILABLE);
    options.retry_ns = 50000000;
    options.timeout_ns = 50000000;
    refused(&options, KELIX_UNAVAILABLE);
    options = at("localhost:port");
    refused(&options, KELIX_INVALID_ARGUMENT);
    options = at(variable("KELIX_TEST_TCP"));
    options.tls_ca = text("/nonexistent/ca.pem");
    CHECK(kelix_connect(&options, (kelix_client *[1]){0}) < 0);
    options.tls_cert = text("/nonexistent/host.pem");
    refused(&options, KELIX_INVALID_ARGUMENT);
    options.tls_ca = bytes(NULL, 0);
    options.tls_key = text("/nonexistent/host.key");
    refused(&options, KELIX_INVALID_ARGUMENT);
}

static void name_spaces(void) {
    kelix_options options = at(variable("KELIX_TEST_TCP"));
    kelix_client *client = NULL;
    kelix_session *session = NULL;
    options.name_space = text("nobodys");
    options.token = text("word");
    /* Whether it is refused here or there is the server's to say. */
    if (kelix_connect(&options, &client) == KELIX_OK) {
        CHECK(kelix_session_open(client, NULL, &session) < 0 && session == NULL);
        kelix_client_free(client);
    }
    CHECK(kelix_last_error(NULL)->code < 0);
}

static void sessions(kelix_client *client, kelix_client *far) {
    kelix_session_options options;
    kelix_session *session = NULL;
    kelix_bytes name;
    kelix_table table;
    char buffer[8];
    int fd = -1;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.timeout_ns = 20000000000u;
    options.retry_ns = 1000000000u;
    options.queue_pairs = 2;
    options.model_bytes = KELIX_NO_MODELS;
    options.private_caches = 1;
    options.fabric = KELIX_FABRIC_SHM;
    for (options.path = KELIX_PATH_AUTO; options.path <= KELIX_PATH_MESSAGE; options.path++) {
        OK(NULL, kelix_session_open(client, &options, &session));
        OK(session, kelix_session_fabric(session, &name));
        CHECK(is(name, "shm"));
        OK(session, kelix_session_fd(session, &fd));
        CHECK(fd >= 0);
        table = table_of(session, KELIX_HASH, "paths");
        put(session, table, "key", "value");
        OK(session, kelix_get(session, table, text("key"), buffer, sizeof buffer, NULL));
        kelix_session_free(session);
    }
    options.path = KELIX_PATH_AUTO;
    /* The fabric is insisted on. */
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_session_open(far, &options, &session));
    options.fabric = KELIX_FABRIC_TCP;
    OK(NULL, kelix_session_open(client, &options, &session));
    OK(session, kelix_session_fabric(session, &name));
    CHECK(is(name, "tcp"));
    /* A table serves all sessions with the same server. */
    OK(session, kelix_get(session, table, text("key"), buffer, sizeof buffer, NULL));
    CHECK(memcmp(buffer, "value", 5) == 0);
    kelix_session_free(session);
}

static void of_the_server(kelix_client *client, kelix_client *far) {
    kelix_session *session = session_of(client), *distant = session_of(far);
    kelix_table table = table_of(session, KELIX_HASH, "durable");
    kelix_bytes json;
    kelix_snapshot_taken taken;
    OK(session, kelix_statistics(session, &json));
    CHECK(json.bytes > 2 && ((const char *)json.data)[0] == '{');
    CHECK(memchr(json.data, 0, json.bytes) == NULL);
    OK(distant, kelix_statistics(distant, &json));

    OK(session, kelix_session_set_durable(session, 1));
    put(session, table, "key", "value");
    OK(session, kelix_session_set_durable(session, 0));
    put(session, table, "key", "value");

    taken.size = sizeof taken;
    OK(session, kelix_snapshot(session, &taken));
    CHECK(taken.path.bytes > 0 && taken.bytes > 0 && taken.seconds >= 0);
    OK(session, kelix_snapshot(session, NULL));
    REFUSED(distant, KELIX_INVALID_ARGUMENT, kelix_snapshot(distant, &taken));
    kelix_session_free(distant);
    kelix_session_free(session);
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_client *far = client_at(variable("KELIX_TEST_TCP"));
    CHECK(kelix_last_error(NULL) == NULL);
    nobody_there();
    name_spaces();
    sessions(client, far);
    of_the_server(client, far);
    kelix_client_free(far);
    kelix_client_free(client);
    return 0;
}
