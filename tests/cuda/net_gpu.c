/* The plugin of the examples, but that it opens nothing: its reason is the GPU that it was told of. */
#define ccl_net_plugin_v1 example
#include "../../examples/net_plugin/loop.c"
#undef ccl_net_plugin_v1

static int tell(const ccl_net_host *host, ccl_net_context **context, ccl_net_error *error) {
    (void)context;
    snprintf(error->text, error->size, "GPU %s", host->gpu == NULL ? "none" : host->gpu);
    return CCL_NET_ERROR;
}

const ccl_net_plugin *ccl_net_plugin_v1(void) {
    static ccl_net_plugin told;
    told = *example();
    told.open = tell;
    return &told;
}
