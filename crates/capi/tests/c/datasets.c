/* Builds and views: a generation comes into force at once, and is read for as long as it is held. */

#include <time.h>

#include "check.h"

static int try_to_begin(kelix_session *session, kelix_build **build) {
    kelix_new_table tables[2];
    memset(tables, 0, sizeof tables);
    tables[0].name = text("products");
    tables[0].kind = KELIX_HASH;
    tables[1].name = text("makers");
    tables[1].kind = KELIX_STRINGS;
    return kelix_build_open(session, text("shop"), tables, 2, build);
}

static kelix_build *begin(kelix_session *session) {
    kelix_build *build = NULL;
    OK(session, try_to_begin(session, &build));
    return build;
}

/* Waits until the server has noticed that the session of another build has ended. */
static void until_none_is_built(kelix_session *session) {
    kelix_build *build = NULL;
    while (try_to_begin(session, &build) == KELIX_INVALID_ARGUMENT) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    OK(session, kelix_build_abandon(session, build));
    kelix_build_free(build);
}

/* Builds a generation in which the chair costs so much. */
static kelix_built load(kelix_session *session, const char *price) {
    kelix_build *build = begin(session);
    kelix_item_builder *item = NULL;
    kelix_table makers;
    kelix_built built;
    built.size = sizeof built;
    OK(NULL, kelix_item_builder_new(&item));
    OK(session, kelix_build_table(session, build, 1, &makers));
    OK(NULL, kelix_item_builder_bytes(item, text("price"), text(price)));
    OK(NULL, kelix_item_builder_link(item, text("maker"), makers, text("ada"), bytes(NULL, 0)));
    OK(NULL, kelix_item_builder_link(item, text("maker"), makers, text("nobody"), bytes(NULL, 0)));
    OK(session, kelix_build_put_item(session, build, 0, text("chair"), item));
    OK(session, kelix_build_put(session, build, 1, text("ada"), text("Ada & Sons")));
    /* The session can do anything else between. */
    put(session, table_of(session, KELIX_HASH, "other"), "key", "value");
    OK(session, kelix_build_finish(session, build, &built));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_build_put(session, build, 1, text("late"), text("x")));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_build_finish(session, build, NULL));
    CHECK(built.items == 2 && built.links == 2 && built.dangling == 1 && built.overlays == 0);
    kelix_build_free(build);
    kelix_item_builder_free(item);
    return built;
}

static void costs(kelix_session *session, kelix_table products, const char *price) {
    kelix_item *item = new_item();
    kelix_bytes found;
    OK(session, kelix_get_item(session, products, text("chair"), item));
    OK(NULL, kelix_item_bytes(item, text("price"), &found));
    CHECK(is(found, price));
    OK(session, kelix_follow(session, item, text("maker"), item));
    CHECK(is(about(item).value, "Ada & Sons"));
    kelix_item_free(item);
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_session *session = session_of(client), *other = session_of(client);
    kelix_view *view = NULL, *none = NULL;
    kelix_build *build, *second = NULL;
    kelix_new_table table;
    kelix_table held, named;
    kelix_built first, next;
    uint64_t generation = 0;

    REFUSED(session, KELIX_NO_SUCH_TABLE, kelix_view_open(session, text("shop"), &none));
    CHECK(none == NULL);
    first = load(session, "10");
    OK(session, kelix_view_open(session, text("shop"), &view));
    OK(NULL, kelix_view_generation(view, &generation));
    CHECK(generation == first.generation);
    OK(NULL, kelix_view_table(view, text("products"), &held));
    REFUSED(NULL, KELIX_NO_SUCH_TABLE, kelix_view_table(view, text("nothing"), &named));
    OK(session, kelix_table_open(session, text("products"), &named));
    costs(session, held, "10");

    /* The next generation: by name it is read at once, and the view stays what it is. */
    next = load(session, "20");
    CHECK(next.generation != first.generation);
    costs(session, held, "10");
    costs(session, named, "20");
    costs(other, named, "20");
    REFUSED(session, KELIX_DENIED, kelix_put(session, named, text("chair"), text("30"), NULL));
    kelix_view_free(view);

    /* What is abandoned was never there, and another build can begin. */
    build = begin(session);
    OK(session, kelix_build_put(session, build, 0, text("chair"), text("0")));
    table.name = text("products");
    table.kind = KELIX_HASH;
    table.overlay = 0;
    REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_build_open(other, text("shop"), &table, 1, &second));
    CHECK(second == NULL);
    REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_build_put(other, build, 0, text("chair"), text("0")));
    REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_build_finish(other, build, NULL));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_build_put(session, build, 2, text("chair"), text("0")));
    OK(session, kelix_build_abandon(session, build));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_build_abandon(session, build));
    kelix_build_free(build);
    costs(session, named, "20");

    /* One that is freed ends with its session. */
    build = begin(session);
    kelix_build_free(build);
    kelix_session_free(session);
    until_none_is_built(other);
    load(other, "30");
    costs(other, named, "30");
    table.kind = 9;
    REFUSED(other, KELIX_INVALID_ARGUMENT, kelix_build_open(other, text("shop"), &table, 1, &second));
    OK(other, kelix_dataset_drop(other, text("shop")));
    RETURNS(other, KELIX_ABSENT, kelix_dataset_drop(other, text("shop")));
    REFUSED(other, KELIX_NO_SUCH_TABLE, kelix_table_open(other, text("products"), &named));
    kelix_session_free(other);
    kelix_client_free(client);
    return 0;
}
