/* Compiled, never run: the sizes and offsets that src/ffi.rs asserts, compared with those of the header. */
#include <stddef.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == offset, #type "." #field)
#define SIZE(type, size) _Static_assert(sizeof(struct type) == size, #type)

AT(ibv_context, ops.poll_cq, 96);
AT(ibv_context, ops.req_notify_cq, 104);
AT(ibv_context, ops.post_send, 208);
AT(ibv_context, ops.post_recv, 216);
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
AT(ibv_device_attr, phys_port_cnt, 227);
AT(ibv_context, device, 0);
AT(ibv_device, transport_type, 20);
AT(rdma_event_channel, fd, 0);
AT(rdma_cm_id, verbs, 0);
AT(rdma_conn_param, private_data_len, 8);
AT(rdma_conn_param, responder_resources, 9);
AT(rdma_conn_param, initiator_depth, 10);
AT(rdma_conn_param, retry_count, 12);
AT(rdma_conn_param, rnr_retry_count, 13);
AT(rdma_conn_param, qp_num, 16);
SIZE(rdma_conn_param, 24);
AT(rdma_cm_event, listen_id, 8);
AT(rdma_cm_event, event, 16);
AT(rdma_cm_event, status, 20);
AT(rdma_cm_event, param, 24);
_Static_assert(RDMA_PS_TCP == 0x106 && IBV_TRANSPORT_IWARP == 1 && IBV_PORT_ACTIVE == 4, "numbers");
_Static_assert(IBV_QPT_RC == 2 && IBV_QPS_INIT == 1 && IBV_QPS_RTR == 2 && IBV_QPS_RTS == 3 && IBV_QPS_ERR == 6, "numbers");
_Static_assert(IBV_QP_STATE == 1 && IBV_QP_ACCESS_FLAGS == 8 && IBV_QP_TIMEOUT == 1 << 9, "numbers");
_Static_assert(IBV_QP_RETRY_CNT == 1 << 10 && IBV_QP_RNR_RETRY == 1 << 11, "numbers");
_Static_assert(IBV_ACCESS_LOCAL_WRITE == 1 && IBV_ACCESS_REMOTE_WRITE == 2 && IBV_ACCESS_REMOTE_READ == 4, "numbers");
_Static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_RDMA_WRITE_WITH_IMM == 1 && IBV_WR_RDMA_READ == 4 && IBV_WR_SEND == 2, "numbers");
_Static_assert(IBV_SEND_SIGNALED == 2 && IBV_SEND_INLINE == 8 && IBV_WC_WITH_IMM == 2, "numbers");
_Static_assert(RDMA_CM_EVENT_ADDR_RESOLVED == 0 && RDMA_CM_EVENT_ROUTE_RESOLVED == 2, "numbers");
_Static_assert(RDMA_CM_EVENT_CONNECT_REQUEST == 4 && RDMA_CM_EVENT_CONNECT_RESPONSE == 5, "numbers");
_Static_assert(RDMA_CM_EVENT_REJECTED == 8 && RDMA_CM_EVENT_ESTABLISHED == 9, "numbers");
_Static_assert(RDMA_CM_EVENT_DISCONNECTED == 10 && RDMA_CM_EVENT_DEVICE_REMOVAL == 11, "numbers");
