/* messages.c - the tables of messages.h. Field order is wire order. */
#include "proto/messages.h"

#include <stdio.h>

#include "proto/dht_msg.h"
#include "proto/hash.h"

/* clang-format off */

MSG_PART(msg_address,
         MSG_FIELD_FIXED(struct msg_address, ip),
         MSG_FIELD_U16(struct msg_address, port));

MSG_DEFINE(peer_info,
           MSG_FIELD_FIXED(struct peer_info, id),
           MSG_FIELD_STRUCT(struct peer_info, address, msg_address_schema),
           MSG_FIELD_U32(struct peer_info, incarnation),
           MSG_FIELD_U8(struct peer_info, reach),
           MSG_FIELD_U64(struct peer_info, round),
           MSG_FIELD_U64(struct peer_info, step),
           MSG_FIELD_U16(struct peer_info, stage),
           MSG_FIELD_U32(struct peer_info, tokens_per_s),
           MSG_FIELD_U32(struct peer_info, bytes_per_s),
           MSG_FIELD_U32(struct peer_info, features));

MSG_PART(rumour,
         MSG_FIELD_FIXED(struct rumour, id),
         MSG_FIELD_U32(struct rumour, incarnation),
         MSG_FIELD_U8(struct rumour, state));

MSG_DEFINE(hello,
           MSG_FIELD_U64(struct hello, life),
           MSG_FIELD_STRUCT(struct hello, observed, msg_address_schema),
           MSG_FIELD_U32(struct hello, features),
           MSG_FIELD_U8(struct hello, oldest),
           MSG_FIELD_U8(struct hello, newest));

MSG_DEFINE(heartbeat,
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
           MSG_FIELD_U32(struct heartbeat, tokens_per_s),
           MSG_FIELD_U8(struct heartbeat, reach),
           MSG_FIELD_BOOL(struct heartbeat, relays),
           MSG_FIELD_U8(struct heartbeat, linked_candidates),
           MSG_FIELD_U8(struct heartbeat, end_phase),
           MSG_FIELD_U16(struct heartbeat, stage),
           MSG_FIELD_U16(struct heartbeat, queue),
           MSG_FIELD_U8(struct heartbeat, number));

MSG_DEFINE(pulse,
           MSG_FIELD_U8(struct pulse, flags),
           MSG_FIELD_U8(struct pulse, number),
           MSG_FIELD_U16(struct pulse, at),
           MSG_FIELD_U16(struct pulse, view),
           MSG_FIELD_U64(struct pulse, hears));

MSG_DEFINE(neighbour, MSG_FIELD_U8(struct neighbour, kind));

MSG_DEFINE(shuffle,
           MSG_FIELD_BOOL(struct shuffle, reply),
           MSG_ARRAY_U16(struct shuffle, digest, n_digest),
           MSG_ARRAY_STRUCT(struct shuffle, peers, n_peers, peer_info_schema));

MSG_DEFINE(gossip,
           MSG_ARRAY_STRUCT(struct gossip, rumours, n_rumours, rumour_schema),
           MSG_ARRAY_STRUCT(struct gossip, peers, n_peers, peer_info_schema));

MSG_DEFINE(forward_body,
           MSG_FIELD_FIXED(struct forward_body, view),
           MSG_FIELD_FIXED(struct forward_body, from),
           MSG_FIELD_FIXED(struct forward_body, to),
           MSG_FIELD_U64(struct forward_body, life),
           MSG_FIELD_U64(struct forward_body, number),
           MSG_FIELD_U16(struct forward_body, message),
           MSG_FIELD_FIXED(struct forward_body, digest));

MSG_DEFINE(forward,
           MSG_FIELD_STRUCT(struct forward, body, forward_body_schema),
           MSG_FIELD_FIXED(struct forward, sig),
           MSG_FIELD_BYTES(struct forward, bytes, n_bytes));

MSG_DEFINE(invitation_body,
           MSG_FIELD_FIXED(struct invitation_body, run),
           MSG_FIELD_U32(struct invitation_body, number),
           MSG_FIELD_U64(struct invitation_body, expiry_s),
           MSG_FIELD_FIXED(struct invitation_body, key));

MSG_PART(invitation,
         MSG_FIELD_STRUCT(struct invitation, body, invitation_body_schema),
         MSG_FIELD_FIXED(struct invitation, sig));

MSG_DEFINE(admission_body,
           MSG_FIELD_FIXED(struct admission_body, run),
           MSG_FIELD_FIXED(struct admission_body, peer));

MSG_DEFINE(admission,
           MSG_FIELD_STRUCT(struct admission, invitation, invitation_schema),
           MSG_FIELD_FIXED(struct admission, proof));

MSG_DEFINE(revocation_body,
           MSG_FIELD_FIXED(struct revocation_body, run),
           MSG_FIELD_U32(struct revocation_body, sequence),
           MSG_ARRAY_U32(struct revocation_body, numbers, n_numbers));

MSG_DEFINE(revocation,
           MSG_FIELD_STRUCT(struct revocation, body, revocation_body_schema),
           MSG_FIELD_FIXED(struct revocation, sig));

MSG_DEFINE(refused, MSG_FIELD_U8(struct refused, reason));

MSG_DEFINE(claim,
           MSG_FIELD_U64(struct claim, life),
           MSG_FIELD_STRUCT(struct claim, from, msg_address_schema));

MSG_DEFINE(present_body,
           MSG_FIELD_FIXED(struct present_body, run),
           MSG_FIELD_U64(struct present_body, life),
           MSG_FIELD_U64(struct present_body, other),
           MSG_FIELD_U64(struct present_body, age_ms));

MSG_DEFINE(present,
           MSG_FIELD_STRUCT(struct present, body, present_body_schema),
           MSG_FIELD_FIXED(struct present, sig));

MSG_DEFINE(goodbye_body,
           MSG_FIELD_FIXED(struct goodbye_body, run),
           MSG_FIELD_FIXED(struct goodbye_body, peer),
           MSG_FIELD_U64(struct goodbye_body, epoch));

MSG_DEFINE(goodbye,
           MSG_FIELD_STRUCT(struct goodbye, body, goodbye_body_schema),
           MSG_FIELD_FIXED(struct goodbye, sig));

MSG_DEFINE(get_manifest, MSG_FIELD_U32(struct get_manifest, offset));

MSG_DEFINE(manifest_part,
           MSG_FIELD_U32(struct manifest_part, offset),
           MSG_FIELD_U32(struct manifest_part, total),
           MSG_FIELD_BYTES(struct manifest_part, bytes, n_bytes));

MSG_PART(view_member,
         MSG_FIELD_FIXED(struct view_member, public_key),
         MSG_FIELD_STRUCT(struct view_member, address, msg_address_schema),
         MSG_FIELD_U64(struct view_member, joined),
         MSG_FIELD_U32(struct view_member, full_since),
         MSG_FIELD_U32(struct view_member, slot));

MSG_DEFINE(view_body,
           MSG_FIELD_FIXED(struct view_body, run),
           MSG_FIELD_U64(struct view_body, epoch),
           MSG_FIELD_FIXED(struct view_body, prev),
           MSG_FIELD_U8(struct view_body, mode),
           MSG_FIELD_BOOL(struct view_body, fork),
           MSG_FIELD_U64(struct view_body, departed),
           MSG_FIELD_U64(struct view_body, round),
           MSG_FIELD_U64(struct view_body, tokens),
           MSG_FIELD_FIXED(struct view_body, commit),
           MSG_ARRAY_STRUCT(struct view_body, members, n_members,
                            view_member_schema),
           MSG_ARRAY_FIXED(struct view_body, roots, n_roots),
           MSG_ARRAY_U16(struct view_body, edges, n_edges),
           MSG_FIELD_U32(struct view_body, slots));

MSG_PART(view_signature,
         MSG_FIELD_FIXED(struct view_signature, public_key),
         MSG_FIELD_FIXED(struct view_signature, sig));

MSG_DEFINE(ballot_body,
           MSG_FIELD_U64(struct ballot_body, ballot),
           MSG_FIELD_FIXED(struct ballot_body, view));

MSG_PART(parting,
         MSG_FIELD_U8(struct parting, member),
         MSG_FIELD_U64(struct parting, epoch),
         MSG_FIELD_FIXED(struct parting, sig));

MSG_DEFINE(view_cert,
           MSG_FIELD_STRUCT(struct view_cert, body, view_body_schema),
           MSG_FIELD_U64(struct view_cert, ballot),
           MSG_ARRAY_STRUCT(struct view_cert, sigs, n_sigs,
                            view_signature_schema),
           MSG_ARRAY_STRUCT(struct view_cert, partings, n_partings,
                            parting_schema));

MSG_DEFINE(suspect_body,
           MSG_FIELD_U64(struct suspect_body, epoch),
           MSG_FIELD_FIXED(struct suspect_body, view),
           MSG_FIELD_U64(struct suspect_body, round));

MSG_PART(asker,
         MSG_FIELD_U8(struct asker, member),
         MSG_FIELD_U64(struct asker, round),
         MSG_FIELD_FIXED(struct asker, sig));

MSG_DEFINE(suspect,
           MSG_FIELD_U64(struct suspect, epoch),
           MSG_FIELD_FIXED(struct suspect, view),
           MSG_FIELD_U64(struct suspect, ballot),
           MSG_FIELD_STRUCT(struct suspect, by, asker_schema));

MSG_DEFINE(prepare,
           MSG_FIELD_U64(struct prepare, epoch),
           MSG_FIELD_FIXED(struct prepare, view),
           MSG_FIELD_U8(struct prepare, mode),
           MSG_FIELD_BOOL(struct prepare, urgent),
           MSG_FIELD_U64(struct prepare, ballot),
           MSG_ARRAY_STRUCT(struct prepare, shown, n_shown, asker_schema),
           MSG_ARRAY_U64(struct prepare, joiners, n_joiners));

MSG_PART(statement,
         MSG_FIELD_BOOL(struct statement, restarted),
         MSG_FIELD_STRUCT(struct statement, address, msg_address_schema),
         MSG_FIELD_U64(struct statement, edges),
         MSG_FIELD_U64(struct statement, round),
         MSG_FIELD_U64(struct statement, tokens),
         MSG_FIELD_FIXED(struct statement, commit),
         MSG_FIELD_U64(struct statement, made_by),
         MSG_FIELD_U8(struct statement, closing),
         MSG_FIELD_U64(struct statement, plan_members),
         MSG_FIELD_U64(struct statement, plan_tokens),
         MSG_FIELD_FIXED(struct statement, voted),
         MSG_FIELD_U64(struct statement, followed),
         MSG_FIELD_BOOL(struct statement, in_ring),
         MSG_FIELD_U8(struct statement, ring_next),
         MSG_FIELD_U32(struct statement, ring_sent),
         MSG_FIELD_U32(struct statement, ring_got),
         MSG_FIELD_U8(struct statement, gate_next),
         MSG_FIELD_U32(struct statement, gate_sent),
         MSG_FIELD_U32(struct statement, gate_got),
         MSG_FIELD_BOOL(struct statement, ring_quiet),
         MSG_FIELD_BOOL(struct statement, has_broken),
         MSG_FIELD_FIXED(struct statement, broken),
         MSG_FIELD_U64(struct statement, vouched),
         MSG_FIELD_U64(struct statement, convicted),
         MSG_ARRAY_U64(struct statement, back, n_back),
         MSG_FIELD_BOOL(struct statement, has_accepted),
         MSG_FIELD_U64(struct statement, accepted_ballot),
         MSG_FIELD_FIXED(struct statement, accepted_view));

MSG_DEFINE(promise_body,
           MSG_FIELD_U64(struct promise_body, epoch),
           MSG_FIELD_FIXED(struct promise_body, view),
           MSG_FIELD_U8(struct promise_body, mode),
           MSG_FIELD_U64(struct promise_body, ballot),
           MSG_FIELD_STRUCT(struct promise_body, said, statement_schema));

MSG_PART(promised,
         MSG_FIELD_U8(struct promised, member),
         MSG_FIELD_STRUCT(struct promised, said, statement_schema),
         MSG_FIELD_FIXED(struct promised, sig));

MSG_DEFINE(join_body,
           MSG_FIELD_FIXED(struct join_body, run),
           MSG_FIELD_FIXED(struct join_body, view),
           MSG_FIELD_U64(struct join_body, round),
           MSG_FIELD_FIXED(struct join_body, commit),
           MSG_FIELD_FIXED(struct join_body, state),
           MSG_FIELD_FIXED(struct join_body, proof),
           MSG_FIELD_STRUCT(struct join_body, address, msg_address_schema),
           MSG_ARRAY_U32(struct join_body, linked, n_linked));

MSG_DEFINE(join,
           MSG_FIELD_STRUCT(struct join, body, join_body_schema),
           MSG_FIELD_FIXED(struct join, sig));

MSG_PART(joining,
         MSG_FIELD_FIXED(struct joining, public_key),
         MSG_FIELD_STRUCT(struct joining, join, join_schema));

MSG_DEFINE(proposal,
           MSG_FIELD_U64(struct proposal, ballot),
           MSG_FIELD_STRUCT(struct proposal, value, view_body_schema),
           MSG_ARRAY_STRUCT(struct proposal, promises, n_promises,
                            promised_schema),
           MSG_ARRAY_STRUCT(struct proposal, joins, n_joins, joining_schema),
           MSG_ARRAY_STRUCT(struct proposal, partings, n_partings,
                            parting_schema));

MSG_PART(standing,
         MSG_FIELD_FIXED(struct standing, sig),
         MSG_FIELD_STRUCT(struct standing, proposal, proposal_schema));

MSG_DEFINE(promise,
           MSG_FIELD_STRUCT(struct promise, body, promise_body_schema),
           MSG_FIELD_FIXED(struct promise, sig),
           MSG_ARRAY_STRUCT(struct promise, accepted, n_accepted,
                            standing_schema),
           MSG_FIELD_U32(struct promise, joiners_linked));

MSG_DEFINE(accept,
           MSG_FIELD_U64(struct accept, epoch),
           MSG_FIELD_FIXED(struct accept, view),
           MSG_FIELD_U8(struct accept, mode),
           MSG_FIELD_U64(struct accept, ballot),
           MSG_FIELD_STRUCT(struct accept, of, standing_schema),
           MSG_ARRAY_STRUCT(struct accept, promises, n_promises,
                            promised_schema));

MSG_DEFINE(accepted,
           MSG_FIELD_U64(struct accepted, epoch),
           MSG_FIELD_FIXED(struct accepted, view),
           MSG_FIELD_STRUCT(struct accepted, body, ballot_body_schema),
           MSG_FIELD_FIXED(struct accepted, sig));

MSG_DEFINE(get_view, MSG_FIELD_BOOL(struct get_view, lineage));

MSG_DEFINE(lineage,
           MSG_FIELD_U64(struct lineage, first_epoch),
           MSG_ARRAY_FIXED(struct lineage, hashes, n_hashes));

MSG_DEFINE(get_proof,
           MSG_FIELD_FIXED(struct get_proof, view),
           MSG_FIELD_U32(struct get_proof, offset));

MSG_DEFINE(proof,
           MSG_FIELD_FIXED(struct proof, view),
           MSG_FIELD_U32(struct proof, offset),
           MSG_FIELD_U32(struct proof, total),
           MSG_FIELD_BYTES(struct proof, bytes, n_bytes));

MSG_PART(reduced_claim,
         MSG_FIELD_U64(struct reduced_claim, upto),
         MSG_FIELD_FIXED(struct reduced_claim, plan));

MSG_PART(text_span,
         MSG_FIELD_U64(struct text_span, first),
         MSG_FIELD_U64(struct text_span, end));

MSG_PART(rollback,
         MSG_FIELD_U64(struct rollback, round),
         MSG_FIELD_FIXED(struct rollback, state));

MSG_PART(moments,
         MSG_FIELD_FIXED(struct moments, root),
         MSG_FIELD_U64(struct moments, steps),
         MSG_FIELD_FIXED(struct moments, ends));

MSG_DEFINE(ready_body,
           MSG_FIELD_U64(struct ready_body, epoch),
           MSG_FIELD_FIXED(struct ready_body, view),
           MSG_FIELD_U64(struct ready_body, round),
           MSG_FIELD_U64(struct ready_body, tokens),
           MSG_FIELD_U64(struct ready_body, first_step),
           MSG_FIELD_U64(struct ready_body, last_step),
           MSG_FIELD_U64(struct ready_body, lease),
           MSG_FIELD_STRUCT(struct ready_body, text, text_span_schema),
           MSG_FIELD_FIXED(struct ready_body, state),
           MSG_ARRAY_STRUCT(struct ready_body, claims, n_claims,
                            reduced_claim_schema),
           MSG_ARRAY_FIXED(struct ready_body, rejected, n_rejected),
           MSG_FIELD_U32(struct ready_body, site),
           MSG_FIELD_U64(struct ready_body, near),
           MSG_ARRAY_STRUCT(struct ready_body, rollback, n_rollback,
                            rollback_schema),
           MSG_FIELD_FIXED(struct ready_body, offer),
           MSG_FIELD_U64(struct ready_body, silent),
           MSG_FIELD_U64(struct ready_body, astray),
           MSG_ARRAY_STRUCT(struct ready_body, moments, n_moments,
                            moments_schema));

MSG_DEFINE(ready,
           MSG_FIELD_STRUCT(struct ready, body, ready_body_schema),
           MSG_FIELD_FIXED(struct ready, sig));

MSG_DEFINE(ready_of,
           MSG_FIELD_U64(struct ready_of, epoch),
           MSG_FIELD_FIXED(struct ready_of, view),
           MSG_FIELD_U64(struct ready_of, round),
           MSG_FIELD_U32(struct ready_of, index),
           MSG_ARRAY_STRUCT(struct ready_of, ready, n_ready, ready_schema));

MSG_PART(plan_member,
         MSG_FIELD_U8(struct plan_member, index),
         MSG_FIELD_U64(struct plan_member, tokens),
         MSG_FIELD_U64(struct plan_member, first_step),
         MSG_FIELD_U64(struct plan_member, last_step),
         MSG_FIELD_U64(struct plan_member, lease),
         MSG_FIELD_STRUCT(struct plan_member, text, text_span_schema),
         MSG_FIELD_U64(struct plan_member, holds),
         MSG_FIELD_U32(struct plan_member, share),
         MSG_FIELD_BOOL(struct plan_member, gateway),
         MSG_FIELD_FIXED(struct plan_member, offer),
         MSG_FIELD_U64(struct plan_member, astray),
         MSG_ARRAY_STRUCT(struct plan_member, moments, n_moments,
                          moments_schema));

MSG_PART(contributor,
         MSG_FIELD_FIXED(struct contributor, peer),
         MSG_FIELD_U64(struct contributor, tokens),
         MSG_FIELD_U64(struct contributor, first_step),
         MSG_FIELD_U64(struct contributor, last_step),
         MSG_FIELD_U64(struct contributor, lease));

MSG_PART(plan_range,
         MSG_FIELD_U64(struct plan_range, upto),
         MSG_FIELD_FIXED(struct plan_range, plan),
         MSG_ARRAY_STRUCT( struct plan_range, contributors, n_contributors,
                          contributor_schema));

MSG_PART(lease_range,
         MSG_FIELD_U64(struct lease_range, first),
         MSG_FIELD_U32(struct lease_range, n));

MSG_PART(lease,
         MSG_FIELD_U64(struct lease, holder),
         MSG_FIELD_U8(struct lease, missed),
         MSG_ARRAY_STRUCT(struct lease, ranges, n_ranges, lease_range_schema));

MSG_DEFINE(ledger,
           MSG_FIELD_U64(struct ledger, next),
           MSG_ARRAY_STRUCT(struct ledger, returned, n_returned,
                            lease_range_schema),
           MSG_ARRAY_STRUCT(struct ledger, held, n_held, lease_schema));

MSG_DEFINE(plan_body,
           MSG_FIELD_U64(struct plan_body, epoch),
           MSG_FIELD_FIXED(struct plan_body, view),
           MSG_FIELD_U64(struct plan_body, round),
           MSG_FIELD_FIXED(struct plan_body, base),
           MSG_FIELD_FIXED(struct plan_body, state),
           MSG_FIELD_U64(struct plan_body, tokens_before),
           MSG_ARRAY_STRUCT(struct plan_body, members, n_members,
                            plan_member_schema),
           MSG_ARRAY_STRUCT(struct plan_body, ranges, n_ranges,
                            plan_range_schema),
           MSG_ARRAY_STRUCT(struct plan_body, ledgers, n_ledgers,
                            ledger_schema),
           MSG_ARRAY_STRUCT(struct plan_body, rollback, n_rollback,
                            rollback_schema));

MSG_DEFINE(plan,
           MSG_FIELD_STRUCT(struct plan, body, plan_body_schema),
           MSG_FIELD_FIXED(struct plan, sig));

MSG_DEFINE(vote_body,
           MSG_FIELD_U64(struct vote_body, epoch),
           MSG_FIELD_FIXED(struct vote_body, view),
           MSG_FIELD_U64(struct vote_body, round),
           MSG_FIELD_FIXED(struct vote_body, plan),
           MSG_FIELD_FIXED(struct vote_body, result));

MSG_DEFINE(vote,
           MSG_FIELD_STRUCT(struct vote, body, vote_body_schema),
           MSG_FIELD_FIXED(struct vote, sig));

MSG_DEFINE(commit,
           MSG_FIELD_STRUCT(struct commit, plan, plan_schema),
           MSG_FIELD_FIXED(struct commit, result),
           MSG_ARRAY_STRUCT(struct commit, votes, n_votes,
                            view_signature_schema));

MSG_DEFINE(accuse,
           MSG_FIELD_U64(struct accuse, round),
           MSG_FIELD_FIXED(struct accuse, commit),
           MSG_FIELD_U64(struct accuse, offset),
           MSG_FIELD_U8(struct accuse, silent));

MSG_DEFINE(verdict_body,
           MSG_FIELD_U64(struct verdict_body, round),
           MSG_FIELD_FIXED(struct verdict_body, commit),
           MSG_FIELD_FIXED(struct verdict_body, accused),
           MSG_FIELD_U8(struct verdict_body, verdict));

MSG_DEFINE(verdict,
           MSG_FIELD_STRUCT(struct verdict, body, verdict_body_schema),
           MSG_FIELD_FIXED(struct verdict, sig));

MSG_DEFINE(get_commit, MSG_FIELD_U64(struct get_commit, round));

MSG_DEFINE(evaluated_body,
           MSG_FIELD_FIXED(struct evaluated_body, commit),
           MSG_FIELD_U64(struct evaluated_body, round),
           MSG_FIELD_U64(struct evaluated_body, microbits));

MSG_DEFINE(evaluated,
           MSG_FIELD_STRUCT(struct evaluated, body, evaluated_body_schema),
           MSG_FIELD_FIXED(struct evaluated, sig));

MSG_PART(bandwidth_edge_report,
         MSG_FIELD_FIXED(struct bandwidth_edge_report, from),
         MSG_FIELD_U64(struct bandwidth_edge_report, bytes_per_s),
         MSG_FIELD_U8(struct bandwidth_edge_report, confidence));

MSG_DEFINE(bandwidth_report,
           MSG_ARRAY_STRUCT(struct bandwidth_report, edges, n_edges,
                            bandwidth_edge_report_schema));

MSG_DEFINE(fetch,
           MSG_FIELD_U8(struct fetch, buffer),
           MSG_FIELD_U64(struct fetch, index),
           MSG_FIELD_U64(struct fetch, offset),
           MSG_FIELD_U32(struct fetch, len),
           MSG_FIELD_U64(struct fetch, attempt),
           MSG_FIELD_U32(struct fetch, seg),
           MSG_FIELD_U8(struct fetch, stream),
           MSG_FIELD_FIXED(struct fetch, root));

MSG_DEFINE(fetch_no,
           MSG_FIELD_U64(struct fetch_no, attempt),
           MSG_FIELD_U32(struct fetch_no, seg));

MSG_DEFINE(pair_offer,
           MSG_FIELD_U8(struct pair_offer, kind),
           MSG_FIELD_U64(struct pair_offer, turn),
           MSG_FIELD_U64(struct pair_offer, epoch),
           MSG_FIELD_U64(struct pair_offer, life),
           MSG_FIELD_U64(struct pair_offer, attempt),
           MSG_FIELD_U32(struct pair_offer, from));

MSG_DEFINE(pair_have,
           MSG_FIELD_U64(struct pair_have, turn),
           MSG_FIELD_U64(struct pair_have, epoch),
           MSG_FIELD_U64(struct pair_have, life),
           MSG_FIELD_BOOL(struct pair_have, done),
           MSG_FIELD_FIXED(struct pair_have, hash));

MSG_PART(stage_host,
         MSG_FIELD_FIXED(struct stage_host, id),
         MSG_FIELD_U16(struct stage_host, stage));

MSG_DEFINE(stage_hello,
           MSG_FIELD_U64(struct stage_hello, round),
           MSG_FIELD_U32(struct stage_hello, step),
           MSG_FIELD_U32(struct stage_hello, attempt),
           MSG_FIELD_U32(struct stage_hello, cost_us),
           MSG_ARRAY_STRUCT(struct stage_hello, hosts, n_hosts,
                            stage_host_schema));

MSG_DEFINE(stage_ready,
           MSG_FIELD_U64(struct stage_ready, round),
           MSG_FIELD_U32(struct stage_ready, step),
           MSG_FIELD_U32(struct stage_ready, attempt));

MSG_DEFINE(stage_take,
           MSG_FIELD_U64(struct stage_take, round),
           MSG_FIELD_U32(struct stage_take, step),
           MSG_FIELD_U32(struct stage_take, attempt),
           MSG_FIELD_U32(struct stage_take, micro));

MSG_DEFINE(stage_eval,
           MSG_FIELD_U64(struct stage_eval, round),
           MSG_FIELD_U32(struct stage_eval, attempt),
           MSG_ARRAY_FIXED(struct stage_eval, hosts, n_hosts));

MSG_DEFINE(eval_take,
           MSG_FIELD_U64(struct eval_take, round),
           MSG_FIELD_U32(struct eval_take, attempt),
           MSG_FIELD_U32(struct eval_take, micro));

MSG_DEFINE(probe, MSG_FIELD_U64(struct probe, request));

MSG_DEFINE(probed,
           MSG_FIELD_U64(struct probed, request),
           MSG_FIELD_BOOL(struct probed, reached),
           MSG_FIELD_STRUCT(struct probed, address, msg_address_schema));

MSG_DEFINE(call,
           MSG_FIELD_FIXED(struct call, to),
           MSG_FIELD_BOOL(struct call, bulk));

MSG_DEFINE(called,
           MSG_FIELD_FIXED(struct called, from),
           MSG_FIELD_STRUCT(struct called, address, msg_address_schema),
           MSG_FIELD_U64(struct called, token));

MSG_DEFINE(ballot_record,
           MSG_FIELD_U64(struct ballot_record, round),
           MSG_ARRAY_STRUCT(struct ballot_record, certs, n_certs,
                            view_cert_schema),
           MSG_FIELD_BOOL(struct ballot_record, has_promised),
           MSG_FIELD_BOOL(struct ballot_record, fork_bound),
           MSG_FIELD_U64(struct ballot_record, promised),
           MSG_FIELD_U64(struct ballot_record, accepted_ballot),
           MSG_ARRAY_STRUCT(struct ballot_record, accepted, n_accepted,
                            standing_schema));
/* clang-format on */

static const struct message_row rows[] = {
#define X(name, value, schema, gate, way, stale)                               \
    [value] = {#name, &schema##_schema, GATE_##gate, WAY_##way, STALE_##stale},
    MESSAGE_MAP(X)
#undef X
};

const struct message_row *message_row(uint16_t type)
{
    return type < sizeof rows / sizeof rows[0] && rows[type].name != NULL
               ? &rows[type]
               : NULL;
}

const struct msg_schema *message_schema(uint16_t type)
{
    const struct message_row *row = message_row(type);

    return row != NULL ? row->schema : NULL;
}

const struct msg_schema *message_any_schema(uint16_t type)
{
    const struct msg_schema *s = message_schema(type);

    return s != NULL ? s : dht_msg_schema(type);
}

/* Who one is, that one lives, and why one hangs up: nothing of it must be
 * remembered, and a link where it comes late is closed. */
static const uint16_t unbound[] = {
    MESSAGE_HELLO,   MESSAGE_PULSE, MESSAGE_ADMISSION, MESSAGE_REVOCATION,
    MESSAGE_REFUSED, MESSAGE_CLAIM, MESSAGE_PRESENT,
};

void message_frame_rules(struct frame_rule rules[MESSAGE_TYPES_MAX])
{
    for (uint16_t type = 0; type < MESSAGE_TYPES_MAX; type++) {
        const struct msg_schema *s = message_any_schema(type);
        size_t max;

        if (s != NULL) {
            max = msg_bytes_max(s);
            rules[type].delivery = FRAME_WHOLE;
            rules[type].bytes_max =
                (uint32_t)(max < FRAME_CONTROL_MAX ? max : FRAME_CONTROL_MAX);
        }
    }
    for (size_t i = 0; i < sizeof unbound / sizeof unbound[0]; i++) {
        rules[unbound[i]].unbound = true;
    }
}

const char *message_name(uint16_t type)
{
    const struct message_row *row = message_row(type);

    return row != NULL ? row->name : "?";
}

size_t message_struct_max(void)
{
    size_t max = 0;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].name != NULL && rows[i].schema->size > max) {
            max = rows[i].schema->size;
        }
    }
    return max;
}

bool hello_fits(const struct hello *m, uint8_t oldest, uint8_t newest)
{
    return m->oldest <= m->newest && m->oldest <= newest && oldest <= m->newest;
}

void hello_versions(uint8_t oldest,
                    uint8_t newest,
                    char text[HELLO_VERSIONS_MAX])
{
    if (oldest == newest) {
        (void)snprintf(text, HELLO_VERSIONS_MAX, "version %u", newest);
    } else {
        (void)snprintf(text, HELLO_VERSIONS_MAX, "versions %u to %u", oldest,
                       newest);
    }
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

void message_commit_name(const struct hash32 *plan,
                         const struct hash32 *result,
                         struct hash32 *out)
{
    struct {
        struct hash32 plan, result;
    } pair = {*plan, *result};

    hash_bytes("loco-commit-1", &pair, sizeof pair, out);
}

void message_commit_hash(const struct plan_body *plan,
                         const struct hash32 *result,
                         struct hash32 *out)
{
    struct hash32 hash;

    message_hash(&plan_body_schema, "loco-plan-1", plan, &hash);
    message_commit_name(&hash, result, out);
}

void message_join_proof(const struct join_body *join,
                        const struct hash32 *sample,
                        const struct peer_id *id,
                        struct hash32 *out)
{
    struct {
        struct hash32 sample, run, view, commit;
        struct peer_id id;
    } all = {*sample, join->run, join->view, join->commit, *id};

    hash_bytes("loco-join-1", &all, sizeof all, out);
}
