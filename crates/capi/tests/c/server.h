/* Servers that are made to stand still. */

#ifndef SERVER_H
#define SERVER_H

#include <dirent.h>
#include <signal.h>
#include <sys/types.h>
#include <time.h>

#include "check.h"

/* Whether every thread of a process has stopped, as its state in /proc tells. */
static inline int has_stopped(pid_t server) {
    char path[512], line[512];
    DIR *tasks;
    const struct dirent *task;
    int running = 0, stopped = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)server);
    tasks = opendir(path);
    CHECK(tasks != NULL);
    while ((task = readdir(tasks)) != NULL) {
        const char *state;
        FILE *stat;
        if (task->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%ld/task/%.20s/stat", (long)server, task->d_name);
        stat = fopen(path, "r");
        if (stat == NULL) continue;
        state = fgets(line, sizeof line, stat) != NULL ? strrchr(line, ')') : NULL;
        stopped += state != NULL && state[2] == 'T';
        running += state != NULL && state[2] != 'T';
        fclose(stat);
    }
    closedir(tasks);
    return stopped > 0 && running == 0;
}

/* Stops a server, and returns when it stands still: a signal takes its time. */
static inline void stop_still(pid_t server) {
    CHECK(kill(server, SIGSTOP) == 0);
    while (!has_stopped(server)) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

#endif
