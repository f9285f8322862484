/* Compiled, never run: the sizes and offsets that src/ffi.rs asserts, compared with those of the header. */
#include <stddef.h>
#include <infiniband/verbs.h>

#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == offset, #type "." #field)
#define SIZE(type, size) _Static_assert(sizeof(struct type) == size, #type)

AT(ibv_context, ops.poll_cq, 96);
AT(ibv_context, ops.req_notify_cq, 104);
AT(ibv_context, ops.post_send, 208);
AT(ibv_context, ops.post_recv, 216);
AT(ibv_context, cmd_fd, 264);
AT(ibv_context, async_fd, 268);
AT(ibv_mr, lkey, 36);
AT(ibv_mr, rkey, 40);
SIZE(ibv_mr, 48);
AT(ibv_comp_channel, fd, 8);
AT(ibv_cq, context, 0);
AT(ibv_qp, context, 0);
AT(ibv_qp, qp_num, 52);
AT(ibv_qp_init_attr, cap, 32);
AT(ibv_qp_init_attr, qp_type, 52);
SIZE(ibv_qp_init_attr, 64);
AT(ibv_ah_attr, grh.sgid_index, 20);
AT(ibv_ah_attr, dlid, 24);
AT(ibv_ah_attr, port_num, 30);
SIZE(ibv_ah_attr, 32);
AT(ibv_qp_attr, ah_attr, 56);
AT(ibv_qp_attr, timeout, 130);
AT(ibv_qp_attr, rate_limit, 136);
SIZE(ibv_qp_attr, 144);
AT(ibv_send_wr, send_flags, 32);
AT(ibv_send_wr, imm_data, 36);
AT(ibv_send_wr, wr.rdma.remote_addr, 40);
AT(ibv_send_wr, wr.rdma.rkey, 48);
SIZE(ibv_send_wr, 128);
SIZE(ibv_recv_wr, 32);
SIZE(ibv_sge, 16);
AT(ibv_wc, status, 8);
AT(ibv_wc, wc_flags, 36);
SIZE(ibv_wc, 48);
AT(ibv_device_attr, max_mr_size, 80);
AT(ibv_device_attr, max_qp, 108);
AT(ibv_device_attr, max_qp_rd_atom, 144);
SIZE(ibv_device_attr, 232);
AT(ibv_port_attr, max_msg_sz, 20);
SIZE(ibv_port_attr, 52);
AT(ibv_async_event, event_type, 8);
SIZE(ibv_async_event, 16);
