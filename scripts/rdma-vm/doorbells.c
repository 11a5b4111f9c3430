/* Counts the doorbells of a program on RoCE in software: loaded by LD_PRELOAD. The user's half of rdma_rxe tells the kernel by a write to its
   device that it has posted requests. Each process that did so says how often, at its end, in the file that DOORBELLS names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long rung;

ssize_t write(int fd, const void *bytes, size_t len) {
    static ssize_t (*real)(int, const void *, size_t);
    struct ib_uverbs_cmd_hdr head;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "write");
    if (len == sizeof head + sizeof(struct ib_uverbs_post_send)) {
        memcpy(&head, bytes, sizeof head);
        rung += head.command == IB_USER_VERBS_CMD_POST_SEND && head.in_words * 4U == len;
    }
    return real(fd, bytes, len);
}

__attribute__((destructor)) static void tell(void) {
    const char *name = getenv("DOORBELLS");
    FILE *file = rung > 0 && name != NULL ? fopen(name, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%lu\n", rung);
        fclose(file);
    }
}
