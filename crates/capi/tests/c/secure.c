/* A server that wants TLS, a certificate of the client's and a token: with all three the client is let in, without any
 * one of them it is not. scripts/test-capi names the files in KELIX_TEST_FILES. */

#include "check.h"

static char ca[4096], cert[4096], key[4096];

static kelix_options all_of_them(void) {
    kelix_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.address = text(variable("KELIX_TEST_TCP"));
    options.timeout_ns = 20000000000u;
    options.tls_ca = text(ca);
    options.tls_cert = text(cert);
    options.tls_key = text(key);
    options.token = text("opensesame");
    return options;
}

/* Whoever is not let in learns it when the client is made, or when its session is. */
static void is_let_in_nowhere(const kelix_options *options) {
    kelix_client *client = NULL;
    kelix_session *session = NULL;
    int code = kelix_connect(options, &client);
    if (code == KELIX_OK) code = kelix_session_open(client, NULL, &session);
    CHECK(code < 0 && session == NULL && kelix_last_error(NULL)->code == code);
    kelix_client_free(client);
}

static void is_of_another_store(kelix_session *session, int code) {
    RETURNS(session, KELIX_SUPERSEDED, code);
    CHECK(kelix_last_error(session)->retry == 0);
}

int main(void) {
    const char *folder = variable("KELIX_TEST_FILES");
    kelix_options options;
    kelix_client *client = NULL;
    kelix_session *session;
    kelix_table table;
    kelix_bytes fabric;
    kelix_table flowers;
    kelix_item *item = new_item();
    kelix_item_builder *builder = NULL;
    kelix_frontier *frontier = NULL;
    char value[8];
    snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    snprintf(cert, sizeof cert, "%s/host.pem", folder);
    snprintf(key, sizeof key, "%s/host.key", folder);

    options = all_of_them();
    OK(NULL, kelix_connect(&options, &client));
    session = session_of(client);
    OK(session, kelix_session_fabric(session, &fabric));
    CHECK(is(fabric, "tcp"));
    table = table_of(session, KELIX_HASH, "secrets");
    put(session, table, "key", "value");
    OK(session, kelix_get(session, table, text("key"), value, sizeof value, NULL));
    CHECK(memcmp(value, "value", 5) == 0);
    OK(NULL, kelix_item_builder_new(&builder));
    OK(NULL, kelix_item_builder_link(builder, text("to"), table, text("key"), bytes(NULL, 0)));
    OK(session, kelix_put_item(session, table, text("link"), builder, NULL, NULL));
    OK(session, kelix_get_item(session, table, text("link"), item));
    OK(NULL, kelix_frontier_new(&frontier));
    OK(NULL, kelix_frontier_add_links(frontier, item, text("to"), NULL));
    kelix_session_free(session);
    kelix_client_free(client);

    /* A namespace of the server's is another store, in which handles and items of the first one lead nowhere. */
    options.name_space = text("garden");
    OK(NULL, kelix_connect(&options, &client));
    session = session_of(client);
    REFUSED(session, KELIX_NO_SUCH_TABLE, kelix_table_open(session, text("secrets"), &table));
    flowers = table_of(session, KELIX_HASH, "flowers");
    put(session, flowers, "rose", "red");
    is_of_another_store(session, kelix_get(session, table, text("key"), value, sizeof value, NULL));
    is_of_another_store(session, kelix_put(session, table, text("key"), text("value"), NULL));
    is_of_another_store(session, kelix_put_item(session, flowers, text("link"), builder, NULL, NULL));
    is_of_another_store(session, kelix_follow(session, item, text("to"), item));
    is_of_another_store(session, kelix_visit(session, frontier, 0, 1, &item, NULL));
    CHECK(is(about(item).key, "link"));
    kelix_item_free(item);
    kelix_item_builder_free(builder);
    kelix_frontier_free(frontier);
    kelix_session_free(session);
    kelix_client_free(client);
    options.name_space = text("nobodys");
    is_let_in_nowhere(&options);

    options = all_of_them();
    options.token = text("sesame");
    is_let_in_nowhere(&options);
    options.token = bytes(NULL, 0);
    is_let_in_nowhere(&options);
    options = all_of_them();
    options.tls_cert = options.tls_key = bytes(NULL, 0);
    is_let_in_nowhere(&options);
    options.tls_ca = bytes(NULL, 0);
    is_let_in_nowhere(&options);
    options = all_of_them();
    /* Not the authority of the server's certificate, but that certificate. */
    options.tls_ca = text(cert);
    is_let_in_nowhere(&options);
    options.tls_ca = text("/nonexistent/ca.pem");
    is_let_in_nowhere(&options);
    return 0;
}
