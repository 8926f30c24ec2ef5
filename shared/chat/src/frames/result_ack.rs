//! `result_ack`: the user has seen what became of an order.

use kernel::ids::OrderNo;
use serde::Deserialize;

use super::ErrorCode;
use crate::ids::Side;
use crate::results::{Acknowledgement, StatusWord};
use crate::service::{Caller, Reaction, Service};
use crate::store::StoreError;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultAck {
    order_no: OrderNo,
    /// The status that was seen. Without it an acknowledgement that was long under way could be taken for that of a newer
    /// status, so then a newer one is repeated once more.
    order_status: Option<StatusWord>,
}

impl ResultAck {
    /// Agents have no orders.
    pub(crate) async fn handle(self, service: &Service, caller: &Caller<'_>) -> Result<Reaction, StoreError> {
        let results = service.postman().results();
        let acknowledged = match caller.party.side {
            Side::Agent => Acknowledgement::Unknown,
            Side::User => {
                let status = self.order_status.as_ref();
                results.acknowledge(&caller.party.id, &self.order_no, status, service.now()).await?
            }
        };
        Ok(match acknowledged {
            Acknowledgement::Marked | Acknowledgement::TooEarly => Reaction::silence(),
            Acknowledgement::Unknown => caller.refuse(ErrorCode::NotFound),
        })
    }
}
