//! `result_ack`: the user has seen what became of an order.

use kernel::ids::OrderNo;
use serde::Deserialize;

use super::{ErrorCode, ServerFrame};
use crate::connections::Connection;
use crate::postman::Postman;
use crate::results::{Acknowledgement, StatusWord};
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
    pub(crate) async fn handle(
        self,
        postman: &Postman,
        connection: &Connection,
    ) -> Result<Vec<ServerFrame>, StoreError> {
        Ok(match postman.acknowledge(connection, &self.order_no, self.order_status.as_ref()).await? {
            Acknowledgement::Marked | Acknowledgement::TooEarly => Vec::new(),
            Acknowledgement::Unknown => {
                vec![ServerFrame::error(ErrorCode::NotFound, connection.language)]
            }
        })
    }
}
