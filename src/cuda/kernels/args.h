/* What a kernel is launched with: one struct, without pointers, the same in C, CUDA C++ and Rust (args.rs, whose tests
 * compare). Frozen: a field goes to the end, and the images are built anew. */
#ifndef CCL_KERNELS_ARGS_H
#define CCL_KERNELS_ARGS_H

/* The most sources, and the most destinations, of a reduction. */
#define CCL_MOST_SOURCES 16
/* The most ranges of a copy. */
#define CCL_MOST_RANGES 64

/* A reduction of `n` sources, in this order, whose result goes to `m` destinations. */
struct ccl_reduce_args {
    /* Addresses. A destination may be a source, exactly; any other overlap gives undefined values. */
    unsigned long long sources[CCL_MOST_SOURCES];
    unsigned long long destinations[CCL_MOST_SOURCES];
    /* What the elements of source k are multiplied by, where bit k of `scaled` is set: an element, at the lowest
     * address. */
    unsigned long long scalars[CCL_MOST_SOURCES];
    /* Elements. */
    unsigned long long count;
    /* Of these: packs of 16 bytes that begin after `head` elements, at multiples of 16 in all sources and
     * destinations. */
    unsigned long long packs;
    unsigned int head;
    unsigned int n;
    unsigned int m;
    unsigned int scaled;
    /* What a sum is divided by; 0: by nothing. */
    unsigned int ranks;
    /* 1: all addresses are multiples of an element's size. */
    unsigned int whole;
    /* 1: what was multiplied is rounded to an element before it is added. */
    unsigned int rounded;
    unsigned int reserved;
};

/* A copy of `ranges` ranges. */
struct ccl_copy_args {
    unsigned long long from[CCL_MOST_RANGES];
    unsigned long long to[CCL_MOST_RANGES];
    unsigned long long bytes[CCL_MOST_RANGES];
    unsigned int ranges;
    unsigned int reserved;
};

#endif
