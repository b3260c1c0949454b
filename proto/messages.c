/* messages.c - the tables of messages.h. Field order is wire order. */
#include "proto/messages.h"

#include <string.h>

#include "proto/hash.h"

#define SCHEMA(name)                                                           \
    const struct msg_schema name##_schema =                                    \
        MSG_SCHEMA(struct name, name##_fields)

static const struct msg_field address_fields[] = {
    MSG_FIELD_FIXED(struct msg_address, ip),
    MSG_FIELD_U16(struct msg_address, port),
};
static const struct msg_schema address_schema =
    MSG_SCHEMA(struct msg_address, address_fields);

static const struct msg_field peer_info_fields[] = {
    MSG_FIELD_FIXED(struct peer_info, id),
    MSG_FIELD_STRUCT(struct peer_info, address, address_schema),
    MSG_FIELD_U32(struct peer_info, incarnation),
    MSG_FIELD_U8(struct peer_info, reach),
    MSG_FIELD_U64(struct peer_info, round),
    MSG_FIELD_U64(struct peer_info, step),
    MSG_FIELD_U16(struct peer_info, stage),
    MSG_FIELD_U32(struct peer_info, tokens_per_s),
    MSG_FIELD_U32(struct peer_info, bytes_per_s),
    MSG_FIELD_U32(struct peer_info, features),
};
SCHEMA(peer_info);

static const struct msg_field rumour_fields[] = {
    MSG_FIELD_FIXED(struct rumour, id),
    MSG_FIELD_U32(struct rumour, incarnation),
    MSG_FIELD_U8(struct rumour, state),
};
static const struct msg_schema rumour_schema =
    MSG_SCHEMA(struct rumour, rumour_fields);

static const struct msg_field hello_fields[] = {
    MSG_FIELD_U64(struct hello, life),
    MSG_FIELD_STRUCT(struct hello, observed, address_schema),
    MSG_FIELD_U32(struct hello, features),
    MSG_FIELD_U8(struct hello, oldest),
    MSG_FIELD_U8(struct hello, newest),
};
SCHEMA(hello);

static const struct msg_field heartbeat_fields[] = {
    MSG_FIELD_U64(struct heartbeat, life),
    MSG_FIELD_U8(struct heartbeat, state),
    MSG_FIELD_BOOL(struct heartbeat, configured),
    MSG_FIELD_BOOL(struct heartbeat, ready),
    MSG_FIELD_BOOL(struct heartbeat, has_view),
    MSG_FIELD_BOOL(struct heartbeat, fork),
    MSG_FIELD_U64(struct heartbeat, epoch),
    MSG_FIELD_FIXED(struct heartbeat, view),
    MSG_FIELD_U64(struct heartbeat, round),
    MSG_FIELD_U64(struct heartbeat, tokens),
    MSG_FIELD_FIXED(struct heartbeat, commit),
    MSG_FIELD_FIXED(struct heartbeat, params),
    MSG_FIELD_FIXED(struct heartbeat, state_hash),
    MSG_FIELD_U64(struct heartbeat, inner_step),
    MSG_FIELD_U64(struct heartbeat, own_tokens),
    MSG_FIELD_U32(struct heartbeat, tokens_per_s),
    MSG_FIELD_U8(struct heartbeat, reach),
    MSG_FIELD_BOOL(struct heartbeat, relays),
    MSG_FIELD_U8(struct heartbeat, muster),
    MSG_FIELD_U16(struct heartbeat, stage),
    MSG_FIELD_U16(struct heartbeat, queue),
    MSG_FIELD_U8(struct heartbeat, number),
};
SCHEMA(heartbeat);

static const struct msg_field pulse_fields[] = {
    MSG_FIELD_U8(struct pulse, flags),  MSG_FIELD_U8(struct pulse, number),
    MSG_FIELD_U16(struct pulse, at),    MSG_FIELD_U16(struct pulse, view),
    MSG_FIELD_U64(struct pulse, hears),
};
SCHEMA(pulse);

static const struct msg_field neighbour_fields[] = {
    MSG_FIELD_U8(struct neighbour, kind),
};
SCHEMA(neighbour);

static const struct msg_field shuffle_fields[] = {
    MSG_FIELD_BOOL(struct shuffle, reply),
    MSG_ARRAY_U16(struct shuffle, digest, n_digest),
    MSG_ARRAY_STRUCT(struct shuffle, peers, n_peers, peer_info_schema),
};
SCHEMA(shuffle);

static const struct msg_field gossip_fields[] = {
    MSG_ARRAY_STRUCT(struct gossip, rumours, n_rumours, rumour_schema),
    MSG_ARRAY_STRUCT(struct gossip, peers, n_peers, peer_info_schema),
};
SCHEMA(gossip);

static const struct msg_field forward_body_fields[] = {
    MSG_FIELD_FIXED(struct forward_body, view),
    MSG_FIELD_FIXED(struct forward_body, from),
    MSG_FIELD_FIXED(struct forward_body, to),
    MSG_FIELD_U64(struct forward_body, life),
    MSG_FIELD_U64(struct forward_body, number),
    MSG_FIELD_U16(struct forward_body, message),
    MSG_FIELD_FIXED(struct forward_body, digest),
};
SCHEMA(forward_body);

static const struct msg_field forward_fields[] = {
    MSG_FIELD_STRUCT(struct forward, body, forward_body_schema),
    MSG_FIELD_FIXED(struct forward, sig),
    MSG_FIELD_BYTES(struct forward, bytes, n_bytes),
};
SCHEMA(forward);

static const struct msg_field invitation_body_fields[] = {
    MSG_FIELD_FIXED(struct invitation_body, run),
    MSG_FIELD_U32(struct invitation_body, number),
    MSG_FIELD_U64(struct invitation_body, expiry_s),
    MSG_FIELD_FIXED(struct invitation_body, key),
};
SCHEMA(invitation_body);

static const struct msg_field invitation_fields[] = {
    MSG_FIELD_STRUCT(struct invitation, body, invitation_body_schema),
    MSG_FIELD_FIXED(struct invitation, sig),
};
static const struct msg_schema invitation_schema =
    MSG_SCHEMA(struct invitation, invitation_fields);

static const struct msg_field admission_body_fields[] = {
    MSG_FIELD_FIXED(struct admission_body, run),
    MSG_FIELD_FIXED(struct admission_body, peer),
};
SCHEMA(admission_body);

static const struct msg_field admission_fields[] = {
    MSG_FIELD_STRUCT(struct admission, invitation, invitation_schema),
    MSG_FIELD_FIXED(struct admission, proof),
};
SCHEMA(admission);

static const struct msg_field revocation_body_fields[] = {
    MSG_FIELD_FIXED(struct revocation_body, run),
    MSG_FIELD_U32(struct revocation_body, sequence),
    MSG_ARRAY_U32(struct revocation_body, numbers, n_numbers),
};
SCHEMA(revocation_body);

static const struct msg_field revocation_fields[] = {
    MSG_FIELD_STRUCT(struct revocation, body, revocation_body_schema),
    MSG_FIELD_FIXED(struct revocation, sig),
};
SCHEMA(revocation);

static const struct msg_field refused_fields[] = {
    MSG_FIELD_U8(struct refused, reason),
};
SCHEMA(refused);

static const struct msg_field claim_fields[] = {
    MSG_FIELD_U64(struct claim, life),
    MSG_FIELD_STRUCT(struct claim, from, address_schema),
};
SCHEMA(claim);

static const struct msg_field present_body_fields[] = {
    MSG_FIELD_FIXED(struct present_body, run),
    MSG_FIELD_U64(struct present_body, life),
    MSG_FIELD_U64(struct present_body, other),
    MSG_FIELD_U64(struct present_body, age_ms),
};
SCHEMA(present_body);

static const struct msg_field present_fields[] = {
    MSG_FIELD_STRUCT(struct present, body, present_body_schema),
    MSG_FIELD_FIXED(struct present, sig),
};
SCHEMA(present);

static const struct msg_field goodbye_body_fields[] = {
    MSG_FIELD_FIXED(struct goodbye_body, run),
    MSG_FIELD_FIXED(struct goodbye_body, peer),
    MSG_FIELD_U64(struct goodbye_body, epoch),
};
SCHEMA(goodbye_body);

static const struct msg_field goodbye_fields[] = {
    MSG_FIELD_STRUCT(struct goodbye, body, goodbye_body_schema),
    MSG_FIELD_FIXED(struct goodbye, sig),
};
SCHEMA(goodbye);

static const struct msg_field get_manifest_fields[] = {
    MSG_FIELD_U32(struct get_manifest, offset),
};
SCHEMA(get_manifest);

static const struct msg_field manifest_part_fields[] = {
    MSG_FIELD_U32(struct manifest_part, offset),
    MSG_FIELD_U32(struct manifest_part, total),
    MSG_FIELD_BYTES(struct manifest_part, bytes, n_bytes),
};
SCHEMA(manifest_part);

static const struct msg_field view_member_fields[] = {
    MSG_FIELD_FIXED(struct view_member, public_key),
    MSG_FIELD_STRUCT(struct view_member, address, address_schema),
    MSG_FIELD_U64(struct view_member, joined),
    MSG_FIELD_U32(struct view_member, slot),
};
static const struct msg_schema view_member_schema =
    MSG_SCHEMA(struct view_member, view_member_fields);

static const struct msg_field view_body_fields[] = {
    MSG_FIELD_FIXED(struct view_body, run),
    MSG_FIELD_U64(struct view_body, epoch),
    MSG_FIELD_FIXED(struct view_body, prev),
    MSG_FIELD_U8(struct view_body, mode),
    MSG_FIELD_BOOL(struct view_body, fork),
    MSG_FIELD_U64(struct view_body, departed),
    MSG_FIELD_U64(struct view_body, round),
    MSG_FIELD_U64(struct view_body, tokens),
    MSG_FIELD_FIXED(struct view_body, commit),
    MSG_ARRAY_STRUCT(struct view_body, members, n_members, view_member_schema),
    MSG_ARRAY_FIXED(struct view_body, roots, n_roots),
    MSG_ARRAY_U16(struct view_body, edges, n_edges),
    MSG_FIELD_U32(struct view_body, slots),
};
SCHEMA(view_body);

static const struct msg_field view_signature_fields[] = {
    MSG_FIELD_FIXED(struct view_signature, public_key),
    MSG_FIELD_FIXED(struct view_signature, sig),
};
static const struct msg_schema view_signature_schema =
    MSG_SCHEMA(struct view_signature, view_signature_fields);

static const struct msg_field ballot_body_fields[] = {
    MSG_FIELD_U64(struct ballot_body, ballot),
    MSG_FIELD_FIXED(struct ballot_body, view),
};
SCHEMA(ballot_body);

static const struct msg_field view_cert_fields[] = {
    MSG_FIELD_STRUCT(struct view_cert, body, view_body_schema),
    MSG_FIELD_U64(struct view_cert, ballot),
    MSG_ARRAY_STRUCT(struct view_cert, sigs, n_sigs, view_signature_schema),
};
SCHEMA(view_cert);

static const struct msg_field suspect_fields[] = {
    MSG_FIELD_U64(struct suspect, epoch),
    MSG_FIELD_FIXED(struct suspect, view),
    MSG_FIELD_U64(struct suspect, ballot),
};
SCHEMA(suspect);

static const struct msg_field prepare_fields[] = {
    MSG_FIELD_U64(struct prepare, epoch),
    MSG_FIELD_FIXED(struct prepare, view),
    MSG_FIELD_U8(struct prepare, mode),
    MSG_FIELD_BOOL(struct prepare, urgent),
    MSG_FIELD_U64(struct prepare, ballot),
};
SCHEMA(prepare);

static const struct msg_field promise_body_fields[] = {
    MSG_FIELD_U64(struct promise_body, epoch),
    MSG_FIELD_FIXED(struct promise_body, view),
    MSG_FIELD_U8(struct promise_body, mode),
    MSG_FIELD_U64(struct promise_body, ballot),
    MSG_FIELD_BOOL(struct promise_body, restarted),
    MSG_FIELD_U64(struct promise_body, round),
    MSG_FIELD_U64(struct promise_body, tokens),
    MSG_FIELD_FIXED(struct promise_body, commit),
    MSG_FIELD_U8(struct promise_body, closing),
    MSG_FIELD_U64(struct promise_body, plan_members),
    MSG_FIELD_U64(struct promise_body, plan_tokens),
    MSG_FIELD_FIXED(struct promise_body, voted),
    MSG_FIELD_BOOL(struct promise_body, in_ring),
    MSG_FIELD_U8(struct promise_body, ring_next),
    MSG_FIELD_U32(struct promise_body, ring_sent),
    MSG_FIELD_U32(struct promise_body, ring_got),
    MSG_FIELD_U8(struct promise_body, gate_next),
    MSG_FIELD_U32(struct promise_body, gate_sent),
    MSG_FIELD_U32(struct promise_body, gate_got),
    MSG_FIELD_BOOL(struct promise_body, ring_quiet),
    MSG_FIELD_BOOL(struct promise_body, has_broken),
    MSG_FIELD_FIXED(struct promise_body, broken),
    MSG_FIELD_BOOL(struct promise_body, has_accepted),
    MSG_FIELD_U64(struct promise_body, accepted_ballot),
};
SCHEMA(promise_body);

static const struct msg_field promise_fields[] = {
    MSG_FIELD_STRUCT(struct promise, body, promise_body_schema),
    MSG_FIELD_FIXED(struct promise, sig),
    MSG_ARRAY_STRUCT(struct promise, accepted, n_accepted, view_body_schema),
};
SCHEMA(promise);

static const struct msg_field accept_fields[] = {
    MSG_FIELD_U64(struct accept, epoch),
    MSG_FIELD_FIXED(struct accept, view),
    MSG_FIELD_U8(struct accept, mode),
    MSG_FIELD_U64(struct accept, ballot),
    MSG_FIELD_STRUCT(struct accept, value, view_body_schema),
};
SCHEMA(accept);

static const struct msg_field accepted_fields[] = {
    MSG_FIELD_U64(struct accepted, epoch),
    MSG_FIELD_FIXED(struct accepted, view),
    MSG_FIELD_STRUCT(struct accepted, body, ballot_body_schema),
    MSG_FIELD_FIXED(struct accepted, sig),
};
SCHEMA(accepted);

static const struct msg_field get_view_fields[] = {
    MSG_FIELD_BOOL(struct get_view, lineage),
};
SCHEMA(get_view);

static const struct msg_field lineage_fields[] = {
    MSG_FIELD_U64(struct lineage, first_epoch),
    MSG_ARRAY_FIXED(struct lineage, hashes, n_hashes),
};
SCHEMA(lineage);

static const struct msg_field join_body_fields[] = {
    MSG_FIELD_FIXED(struct join_body, run),
    MSG_FIELD_FIXED(struct join_body, view),
    MSG_FIELD_U64(struct join_body, round),
    MSG_FIELD_FIXED(struct join_body, commit),
    MSG_FIELD_FIXED(struct join_body, state),
};
SCHEMA(join_body);

static const struct msg_field join_fields[] = {
    MSG_FIELD_STRUCT(struct join, body, join_body_schema),
    MSG_FIELD_STRUCT(struct join, address, address_schema),
    MSG_FIELD_FIXED(struct join, sig),
    MSG_ARRAY_U64(struct join, linked, n_linked),
};
SCHEMA(join);

static const struct msg_field get_proof_fields[] = {
    MSG_FIELD_FIXED(struct get_proof, view),
    MSG_FIELD_U32(struct get_proof, offset),
};
SCHEMA(get_proof);

static const struct msg_field proof_fields[] = {
    MSG_FIELD_FIXED(struct proof, view),
    MSG_FIELD_U32(struct proof, offset),
    MSG_FIELD_U32(struct proof, total),
    MSG_FIELD_BYTES(struct proof, bytes, n_bytes),
};
SCHEMA(proof);

static const struct msg_field reduced_claim_fields[] = {
    MSG_FIELD_U64(struct reduced_claim, upto),
    MSG_FIELD_FIXED(struct reduced_claim, plan),
};
static const struct msg_schema reduced_claim_schema =
    MSG_SCHEMA(struct reduced_claim, reduced_claim_fields);

static const struct msg_field text_span_fields[] = {
    MSG_FIELD_U64(struct text_span, first),
    MSG_FIELD_U64(struct text_span, end),
};
static const struct msg_schema text_span_schema =
    MSG_SCHEMA(struct text_span, text_span_fields);

static const struct msg_field ready_body_fields[] = {
    MSG_FIELD_U64(struct ready_body, epoch),
    MSG_FIELD_FIXED(struct ready_body, view),
    MSG_FIELD_U64(struct ready_body, round),
    MSG_FIELD_U64(struct ready_body, tokens),
    MSG_FIELD_U64(struct ready_body, first_step),
    MSG_FIELD_U64(struct ready_body, last_step),
    MSG_FIELD_U64(struct ready_body, lease),
    MSG_FIELD_STRUCT(struct ready_body, text, text_span_schema),
    MSG_FIELD_FIXED(struct ready_body, state),
    MSG_ARRAY_STRUCT(struct ready_body, claims, n_claims, reduced_claim_schema),
    MSG_ARRAY_FIXED(struct ready_body, rejected, n_rejected),
    MSG_FIELD_U32(struct ready_body, site),
    MSG_FIELD_U64(struct ready_body, near),
};
SCHEMA(ready_body);

static const struct msg_field ready_fields[] = {
    MSG_FIELD_STRUCT(struct ready, body, ready_body_schema),
    MSG_FIELD_FIXED(struct ready, sig),
};
SCHEMA(ready);

static const struct msg_field plan_member_fields[] = {
    MSG_FIELD_U8(struct plan_member, index),
    MSG_FIELD_U64(struct plan_member, tokens),
    MSG_FIELD_U64(struct plan_member, first_step),
    MSG_FIELD_U64(struct plan_member, last_step),
    MSG_FIELD_U64(struct plan_member, lease),
    MSG_FIELD_STRUCT(struct plan_member, text, text_span_schema),
    MSG_FIELD_U64(struct plan_member, holds),
    MSG_FIELD_U32(struct plan_member, share),
};
static const struct msg_schema plan_member_schema =
    MSG_SCHEMA(struct plan_member, plan_member_fields);

static const struct msg_field contributor_fields[] = {
    MSG_FIELD_FIXED(struct contributor, peer),
    MSG_FIELD_U64(struct contributor, tokens),
    MSG_FIELD_U64(struct contributor, first_step),
    MSG_FIELD_U64(struct contributor, last_step),
    MSG_FIELD_U64(struct contributor, lease),
};
static const struct msg_schema contributor_schema =
    MSG_SCHEMA(struct contributor, contributor_fields);

static const struct msg_field plan_range_fields[] = {
    MSG_FIELD_U64(struct plan_range, upto),
    MSG_FIELD_FIXED(struct plan_range, plan),
    MSG_ARRAY_STRUCT(
        struct plan_range, contributors, n_contributors, contributor_schema),
};
static const struct msg_schema plan_range_schema =
    MSG_SCHEMA(struct plan_range, plan_range_fields);

static const struct msg_field lease_range_fields[] = {
    MSG_FIELD_U64(struct lease_range, first),
    MSG_FIELD_U32(struct lease_range, n),
};
static const struct msg_schema lease_range_schema =
    MSG_SCHEMA(struct lease_range, lease_range_fields);

static const struct msg_field lease_fields[] = {
    MSG_FIELD_U64(struct lease, holder),
    MSG_FIELD_U8(struct lease, missed),
    MSG_ARRAY_STRUCT(struct lease, ranges, n_ranges, lease_range_schema),
};
static const struct msg_schema lease_schema =
    MSG_SCHEMA(struct lease, lease_fields);

static const struct msg_field ledger_fields[] = {
    MSG_FIELD_U64(struct ledger, next),
    MSG_ARRAY_STRUCT(struct ledger, returned, n_returned, lease_range_schema),
    MSG_ARRAY_STRUCT(struct ledger, held, n_held, lease_schema),
};
SCHEMA(ledger);

static const struct msg_field plan_body_fields[] = {
    MSG_FIELD_U64(struct plan_body, epoch),
    MSG_FIELD_FIXED(struct plan_body, view),
    MSG_FIELD_U64(struct plan_body, round),
    MSG_FIELD_FIXED(struct plan_body, base),
    MSG_FIELD_FIXED(struct plan_body, state),
    MSG_FIELD_U64(struct plan_body, tokens_before),
    MSG_ARRAY_STRUCT(struct plan_body, members, n_members, plan_member_schema),
    MSG_ARRAY_STRUCT(struct plan_body, ranges, n_ranges, plan_range_schema),
    MSG_ARRAY_STRUCT(struct plan_body, ledgers, n_ledgers, ledger_schema),
};
SCHEMA(plan_body);

static const struct msg_field plan_fields[] = {
    MSG_FIELD_STRUCT(struct plan, body, plan_body_schema),
    MSG_FIELD_FIXED(struct plan, sig),
};
SCHEMA(plan);

static const struct msg_field vote_body_fields[] = {
    MSG_FIELD_U64(struct vote_body, epoch),
    MSG_FIELD_FIXED(struct vote_body, view),
    MSG_FIELD_U64(struct vote_body, round),
    MSG_FIELD_FIXED(struct vote_body, plan),
    MSG_FIELD_FIXED(struct vote_body, result),
};
SCHEMA(vote_body);

static const struct msg_field vote_fields[] = {
    MSG_FIELD_STRUCT(struct vote, body, vote_body_schema),
    MSG_FIELD_FIXED(struct vote, sig),
};
SCHEMA(vote);

static const struct msg_field commit_fields[] = {
    MSG_FIELD_STRUCT(struct commit, plan, plan_schema),
    MSG_FIELD_FIXED(struct commit, result),
    MSG_ARRAY_STRUCT(struct commit, votes, n_votes, view_signature_schema),
};
SCHEMA(commit);

static const struct msg_field get_commit_fields[] = {
    MSG_FIELD_U64(struct get_commit, round),
};
SCHEMA(get_commit);

static const struct msg_field evaluated_body_fields[] = {
    MSG_FIELD_FIXED(struct evaluated_body, commit),
    MSG_FIELD_U64(struct evaluated_body, round),
    MSG_FIELD_U64(struct evaluated_body, microbits),
};
SCHEMA(evaluated_body);

static const struct msg_field evaluated_fields[] = {
    MSG_FIELD_STRUCT(struct evaluated, body, evaluated_body_schema),
    MSG_FIELD_FIXED(struct evaluated, sig),
};
SCHEMA(evaluated);

static const struct msg_field bandwidth_edge_report_fields[] = {
    MSG_FIELD_FIXED(struct bandwidth_edge_report, from),
    MSG_FIELD_U64(struct bandwidth_edge_report, bytes_per_s),
    MSG_FIELD_U8(struct bandwidth_edge_report, confidence),
};
static const struct msg_schema bandwidth_edge_report_schema =
    MSG_SCHEMA(struct bandwidth_edge_report, bandwidth_edge_report_fields);

static const struct msg_field bandwidth_report_fields[] = {
    MSG_ARRAY_STRUCT(
        struct bandwidth_report, edges, n_edges, bandwidth_edge_report_schema),
};
SCHEMA(bandwidth_report);

static const struct msg_field fetch_fields[] = {
    MSG_FIELD_U8(struct fetch, buffer),   MSG_FIELD_U64(struct fetch, index),
    MSG_FIELD_U64(struct fetch, offset),  MSG_FIELD_U32(struct fetch, len),
    MSG_FIELD_U64(struct fetch, attempt), MSG_FIELD_U32(struct fetch, seg),
    MSG_FIELD_U8(struct fetch, stream),   MSG_FIELD_FIXED(struct fetch, root),
};
SCHEMA(fetch);

static const struct msg_field fetch_no_fields[] = {
    MSG_FIELD_U64(struct fetch_no, attempt),
    MSG_FIELD_U32(struct fetch_no, seg),
};
SCHEMA(fetch_no);

static const struct msg_field pair_offer_fields[] = {
    MSG_FIELD_U8(struct pair_offer, kind),
    MSG_FIELD_U64(struct pair_offer, turn),
    MSG_FIELD_U64(struct pair_offer, epoch),
    MSG_FIELD_U64(struct pair_offer, life),
    MSG_FIELD_U64(struct pair_offer, attempt),
    MSG_FIELD_U32(struct pair_offer, from),
};
SCHEMA(pair_offer);

static const struct msg_field pair_have_fields[] = {
    MSG_FIELD_U64(struct pair_have, turn),
    MSG_FIELD_U64(struct pair_have, epoch),
    MSG_FIELD_U64(struct pair_have, life),
    MSG_FIELD_BOOL(struct pair_have, done),
    MSG_FIELD_FIXED(struct pair_have, hash),
};
SCHEMA(pair_have);

static const struct msg_field stage_host_fields[] = {
    MSG_FIELD_FIXED(struct stage_host, id),
    MSG_FIELD_U16(struct stage_host, stage),
};
static const struct msg_schema stage_host_schema =
    MSG_SCHEMA(struct stage_host, stage_host_fields);

static const struct msg_field stage_hello_fields[] = {
    MSG_FIELD_U64(struct stage_hello, round),
    MSG_FIELD_U32(struct stage_hello, step),
    MSG_FIELD_U32(struct stage_hello, attempt),
    MSG_FIELD_U32(struct stage_hello, cost_us),
    MSG_ARRAY_STRUCT(struct stage_hello, hosts, n_hosts, stage_host_schema),
};
SCHEMA(stage_hello);

static const struct msg_field stage_ready_fields[] = {
    MSG_FIELD_U64(struct stage_ready, round),
    MSG_FIELD_U32(struct stage_ready, step),
    MSG_FIELD_U32(struct stage_ready, attempt),
};
SCHEMA(stage_ready);

static const struct msg_field stage_take_fields[] = {
    MSG_FIELD_U64(struct stage_take, round),
    MSG_FIELD_U32(struct stage_take, step),
    MSG_FIELD_U32(struct stage_take, attempt),
    MSG_FIELD_U32(struct stage_take, micro),
};
SCHEMA(stage_take);

static const struct msg_field stage_eval_fields[] = {
    MSG_FIELD_U64(struct stage_eval, round),
    MSG_FIELD_U32(struct stage_eval, attempt),
    MSG_ARRAY_FIXED(struct stage_eval, hosts, n_hosts),
};
SCHEMA(stage_eval);

static const struct msg_field eval_take_fields[] = {
    MSG_FIELD_U64(struct eval_take, round),
    MSG_FIELD_U32(struct eval_take, attempt),
    MSG_FIELD_U32(struct eval_take, micro),
};
SCHEMA(eval_take);

static const struct msg_field owners_said_fields[] = {
    MSG_FIELD_U8(struct owners_said, kind),
    MSG_FIELD_U64(struct owners_said, epoch),
    MSG_FIELD_U32(struct owners_said, slice),
    MSG_FIELD_U8(struct owners_said, what),
    MSG_FIELD_U32(struct owners_said, slot),
    MSG_FIELD_U64(struct owners_said, attempt),
    MSG_FIELD_BOOL(struct owners_said, held),
    MSG_FIELD_BOOL(struct owners_said, refused),
    MSG_FIELD_U32(struct owners_said, worker),
    MSG_FIELD_U64(struct owners_said, task),
    MSG_FIELD_U64(struct owners_said, generation),
    MSG_FIELD_U64(struct owners_said, position),
    MSG_FIELD_U64(struct owners_said, read_generation),
    MSG_FIELD_U64(struct owners_said, read_position),
    MSG_FIELD_U64(struct owners_said, flush),
    MSG_FIELD_U32(struct owners_said, size),
    MSG_FIELD_U32(struct owners_said, count),
};
SCHEMA(owners_said);

static const struct msg_field owners_head_fields[] = {
    MSG_FIELD_STRUCT(struct owners_head, said, owners_said_schema),
    MSG_ARRAY_U64(struct owners_head, tasks, n_tasks),
};
SCHEMA(owners_head);

static const struct msg_field probe_fields[] = {
    MSG_FIELD_U64(struct probe, request),
};
SCHEMA(probe);

static const struct msg_field probed_fields[] = {
    MSG_FIELD_U64(struct probed, request),
    MSG_FIELD_BOOL(struct probed, reached),
    MSG_FIELD_STRUCT(struct probed, address, address_schema),
};
SCHEMA(probed);

static const struct msg_field call_fields[] = {
    MSG_FIELD_FIXED(struct call, to),
    MSG_FIELD_BOOL(struct call, bulk),
};
SCHEMA(call);

static const struct msg_field called_fields[] = {
    MSG_FIELD_FIXED(struct called, from),
    MSG_FIELD_STRUCT(struct called, address, address_schema),
    MSG_FIELD_U64(struct called, token),
};
SCHEMA(called);

static const struct msg_field ballot_record_fields[] = {
    MSG_FIELD_U64(struct ballot_record, round),
    MSG_ARRAY_STRUCT(struct ballot_record, certs, n_certs, view_cert_schema),
    MSG_FIELD_BOOL(struct ballot_record, has_promised),
    MSG_FIELD_BOOL(struct ballot_record, fork_bound),
    MSG_FIELD_U64(struct ballot_record, promised),
    MSG_FIELD_U64(struct ballot_record, accepted_ballot),
    MSG_ARRAY_STRUCT(
        struct ballot_record, accepted, n_accepted, view_body_schema),
};
SCHEMA(ballot_record);

const struct msg_schema *message_schema(uint16_t type)
{
    switch (type) {
#define X(name, value, schema)                                                 \
    case value:                                                                \
        return &schema##_schema;
        MESSAGE_MAP(X)
#undef X
    default:
        return NULL;
    }
}

const char *message_name(uint16_t type)
{
    switch (type) {
#define X(name, value, schema)                                                 \
    case value:                                                                \
        return #name;
        MESSAGE_MAP(X)
#undef X
    default:
        return "?";
    }
}

size_t message_struct_max(void)
{
    size_t max = 0;

#define X(name, value, schema)                                                 \
    max = sizeof(struct schema) > max ? sizeof(struct schema) : max;
    MESSAGE_MAP(X)
#undef X
    return max;
}

void message_hash(const struct msg_schema *schema,
                  const char *domain,
                  const void *obj,
                  struct hash32 *out)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n = msg_encode(schema, obj, bytes, sizeof bytes);

    hash_bytes(domain, bytes, n < 0 ? 0 : (size_t)n, out);
}

int message_sign(const struct signer *signer,
                 const struct msg_schema *schema,
                 const void *body,
                 uint8_t sig[SIGN_BYTES])
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n = msg_encode(schema, body, bytes, sizeof bytes);

    if (n < 0) {
        return n;
    }
    return signer->sign(signer->self, schema->name, bytes, (size_t)n, sig);
}

bool message_verify(const struct signer *signer,
                    const uint8_t public_key[SIGN_PUBLIC_BYTES],
                    const struct msg_schema *schema,
                    const void *body,
                    const uint8_t sig[SIGN_BYTES])
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n = msg_encode(schema, body, bytes, sizeof bytes);

    return n >= 0 && signer->verify(signer->self, public_key, schema->name,
                                    bytes, (size_t)n, sig);
}

void message_commit_hash(const struct plan_body *plan,
                         const struct hash32 *result,
                         struct hash32 *out)
{
    struct {
        struct hash32 plan, result;
    } pair;

    message_hash(&plan_body_schema, "loco-plan-1", plan, &pair.plan);
    pair.result = *result;
    hash_bytes("loco-commit-1", &pair, sizeof pair, out);
}
