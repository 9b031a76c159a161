// onednn.cpp - matrix products by oneDNN. Every exception ends here: oneDNN throws bad_alloc
// through its C interface too.
#include "kernels/cpu/onednn.h"

#include <dlfcn.h>
#include <cstdio>
#include <map>
#include <new>
#include <tuple>
#include <unordered_map>

#include <dnnl.hpp>

#include "kernels/kernels.h"

namespace
{
using key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int, int>;

struct made {
    dnnl::matmul::primitive_desc pd;
    dnnl::matmul prim;
};

dnnl::memory::desc matrix(int64_t rows, int64_t cols, int64_t ld, bool transposed)
{
    using md = dnnl::memory;
    return md::desc({rows, cols}, md::data_type::f32,
                    transposed ? md::dims{1, ld} : md::dims{ld, 1});
}

dnnl::primitive_attr attributes(const mm_shape &s)
{
    dnnl::primitive_attr attr;
    dnnl::post_ops ops;
    auto act = [&ops](dnnl::algorithm a) {
#if DNNL_VERSION_MAJOR >= 3
        ops.append_eltwise(a, 0.f, 0.f);
#else
        ops.append_eltwise(1.f, a, 0.f, 0.f);
#endif
    };

    // the caller's scratch: one primitive is run by several threads at once
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    switch (s.act) {
    case KERN_ACT_RELU:
        act(dnnl::algorithm::eltwise_relu);
        break;
    case KERN_ACT_GELU_TANH:
        act(dnnl::algorithm::eltwise_gelu_tanh);
        break;
    case KERN_ACT_GELU_ERF:
        act(dnnl::algorithm::eltwise_gelu_erf);
        break;
    case KERN_ACT_SIGMOID:
        act(dnnl::algorithm::eltwise_logistic);
        break;
    case KERN_ACT_TANH:
        act(dnnl::algorithm::eltwise_tanh);
        break;
    default:
        break;
    }
    if (s.accumulate)
        ops.append_sum(1.f);
    attr.set_post_ops(ops);
    return attr;
}

dnnl::matmul::primitive_desc describe(const dnnl::engine &e, const mm_shape &s)
{
    auto a = matrix(s.m, s.k, s.lda, s.ta), b = matrix(s.k, s.n, s.ldb, s.tb),
         c = matrix(s.m, s.n, s.ldc, false);
    auto bias = matrix(1, s.n, s.n, false);
    auto attr = attributes(s);
#if DNNL_VERSION_MAJOR >= 3
    return s.bias ? dnnl::matmul::primitive_desc(e, a, b, bias, c, attr)
                  : dnnl::matmul::primitive_desc(e, a, b, c, attr);
#else
    return s.bias ? dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, bias, c), attr, e)
                  : dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attr, e);
#endif
}

// One OpenMP thread in whichever thread this is: libgomp may not even be there.
void one_omp_thread()
{
    thread_local bool done = false;
    using set_fn = void (*)(int);

    if (done)
        return;
    done = true;
    if (auto set = reinterpret_cast<set_fn>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")))
        set(1);
}
} // namespace

struct dnnl_cache {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    std::map<key, made> made_of;
};

struct mm {
    const made *p;
    dnnl::stream stream;
    dnnl::memory a, b, c, bias, scratch;
    std::unordered_map<int, dnnl::memory> args;
};

dnnl_cache *dnnl_cache_new(void)
{
    try {
        one_omp_thread();
        return new dnnl_cache;
    } catch (...) {
        return nullptr;
    }
}

void dnnl_cache_free(dnnl_cache *c)
{
    delete c;
}

int mm_new(dnnl_cache *c, const mm_shape *s, mm **out, char *why, size_t cap)
{
    *out = nullptr;
    try {
        one_omp_thread();
        int flags = s->ta | s->tb << 1 | s->bias << 2 | s->accumulate << 3;
        key k{s->m, s->n, s->k, s->lda, s->ldb, s->ldc, flags, s->act};
        auto at = c->made_of.find(k);
        if (at == c->made_of.end()) {
            auto pd = describe(c->engine, *s);
            at = c->made_of.emplace(k, made{pd, dnnl::matmul(pd)}).first;
        }
        auto *m = new mm;
        m->p = &at->second;
        const auto &pd = m->p->pd;
        m->stream = dnnl::stream(c->engine);
        m->a = dnnl::memory(pd.src_desc(), c->engine, DNNL_MEMORY_NONE);
        m->b = dnnl::memory(pd.weights_desc(), c->engine, DNNL_MEMORY_NONE);
        m->c = dnnl::memory(pd.dst_desc(), c->engine, DNNL_MEMORY_NONE);
        m->scratch = dnnl::memory(pd.scratchpad_desc(), c->engine);
        m->args = {{DNNL_ARG_SRC, m->a},
                   {DNNL_ARG_WEIGHTS, m->b},
                   {DNNL_ARG_DST, m->c},
                   {DNNL_ARG_SCRATCHPAD, m->scratch}};
        if (s->bias) {
            m->bias = dnnl::memory(pd.bias_desc(), c->engine, DNNL_MEMORY_NONE);
            m->args[DNNL_ARG_BIAS] = m->bias;
        }
        *out = m;
        return 0;
    } catch (const std::exception &e) {
        std::snprintf(why, cap, "oneDNN: %s", e.what());
    } catch (...) {
        std::snprintf(why, cap, "oneDNN failed");
    }
    return -1;
}

void mm_free(mm *m)
{
    delete m;
}

int mm_run(mm *m, const float *a, const float *b, const float *bias, float *c)
{
    try {
        one_omp_thread();
        m->a.set_data_handle(const_cast<float *>(a));
        m->b.set_data_handle(const_cast<float *>(b));
        m->c.set_data_handle(c);
        if (m->bias)
            m->bias.set_data_handle(const_cast<float *>(bias));
        m->p->prim.execute(m->stream, m->args);
        m->stream.wait();
        return 0;
    } catch (...) {
        return -1;
    }
}

const char *cpu_dnnl_version(char *buf, size_t cap)
{
    const dnnl_version_t *v = dnnl_version();
    std::snprintf(buf, cap, "%d.%d.%d", v->major, v->minor, v->patch);
    return buf;
}
