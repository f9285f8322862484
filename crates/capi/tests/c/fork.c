/* A process that forks: the child is refused in its parent's session, opens its own, and leaves the parent's alone. */

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

int main(void) {
    const char *directory = variable("KELIX_TEST_DIRECTORY");
    kelix_client *client = client_at(directory);
    kelix_session *session = session_of(client), *own;
    kelix_table table = table_of(session, KELIX_HASH, "forks");
    kelix_item *item = new_item();
    char buffer[8];
    int status = 0, round;
    pid_t child;

    put(session, table, "key", "value");
    OK(session, kelix_get_item(session, table, text("key"), item));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        REFUSED(session, KELIX_FORKED, kelix_get(session, table, text("key"), buffer, sizeof buffer, NULL));
        REFUSED(session, KELIX_FORKED, kelix_put(session, table, text("key"), text("child's"), NULL));
        CHECK(kelix_last_error(session)->effect == KELIX_EFFECT_NO);
        /* What was read before is a copy of this process's own. */
        CHECK(is(about(item).value, "value"));
        own = session_of(client);
        OK(own, kelix_get(own, table, text("key"), buffer, sizeof buffer, NULL));
        CHECK(memcmp(buffer, "value", 5) == 0);
        put(own, table, "child", "was here");
        kelix_session_free(own);
        kelix_session_free(session);
        kelix_item_free(item);
        kelix_client_free(client);
        return 0;
    }
    /* The parent goes on meanwhile. */
    for (round = 0; round < 1000; round++) put(session, table, "key", "value");
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(session, kelix_get(session, table, text("child"), buffer, sizeof buffer, NULL));
    CHECK(memcmp(buffer, "was here", 8) == 0);
    put(session, table, "key", "value");
    kelix_item_free(item);
    kelix_session_free(session);
    kelix_client_free(client);
    return 0;
}
