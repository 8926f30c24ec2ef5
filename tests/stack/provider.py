"""A payment provider for the local stack: it has the shape of a real one, and its money is made up.

    POST /v1/payments   signed by the merchant: a payment is prepared; the same order again is the same payment
    POST /v1/refunds    signed by the merchant: a payment goes back, once
    GET  /v1/ledger     what was really taken and paid back: the demo holds the shop's books against it
    GET  /pay/{id}      the cashier's page
    POST /pay/{id}      what its buttons do: {"outcome": "SUCCESS" | "FAILED"}. Money is taken, the shop gets its notice

Notices are repeated until the shop answers {"code": "SUCCESS"}. After `expiresAt` the cashier warns and takes the money all the same: money
that comes late is what shops have to live with. Tests may say more when they pay: how many `copies` of the notice come at once, after how many `delayMs`,
and what the notice speaks of (`amount`, `merchantId`, `orderNo`, `transactionId`) instead of what was prepared.

Its settings come by environment: PORT, MERCHANT_ID, KEY, and LEDGER, the file that every movement is added to.
"""

import hashlib
import hmac
import html
import json
import os
import re
import secrets
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 64 * 1024
MAX_SKEW_SECS = 300
# one notice: tries, how long one may take, and the first and the longest pause between two
TRIES = 8
NOTICE_SECS = 15
FIRST_PAUSE_SECS = 0.25
LONGEST_PAUSE_SECS = 4
MAX_COPIES = 20
MAX_DELAY_MS = 60_000

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
CURRENCY = re.compile(r"[A-Z]{3}")
# money that is made up has no business elsewhere
NOTIFY_URL = re.compile(r"http://127\.0\.0\.1:\d{1,5}/[^\s]*")

# how many decimals amounts have; two where nothing is said (ISO 4217)
DECIMALS = {
    **dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(), 0),
    **dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3),
}

FRAME = """<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  body {{ margin: 0; min-height: 100vh; display: grid; place-items: center; background: #f2f3f5; color: #1d2129; font: 16px/1.5 system-ui, sans-serif }}
  main {{ box-sizing: border-box; width: min(26rem, 100vw - 2rem); margin: 1rem; padding: 1.5rem; background: #fff; border-radius: 12px; box-shadow: 0 2px 12px #0001 }}
  h1 {{ margin: 0; font-size: 1.1rem; overflow-wrap: anywhere }}
  .amount {{ margin: .5rem 0; font-size: 2rem; font-weight: 600 }}
  .small {{ margin: .25rem 0; color: #5a6170; font-size: .85rem; overflow-wrap: anywhere }}
  .late {{ margin: 1rem 0 0; padding: .5rem .75rem; background: #fff4e5; border-radius: 8px }}
  .buttons {{ display: flex; gap: .75rem; margin-top: 1.25rem }}
  button {{ flex: 1; padding: .7rem; border: 1px solid #c5cad3; border-radius: 8px; background: #fff; color: inherit; font: inherit; cursor: pointer }}
  button[value=SUCCESS] {{ border-color: #0a6e31; background: #0a6e31; color: #fff }}
  button:disabled {{ opacity: .45; cursor: default }}
  #said {{ margin: 1rem 0 0; min-height: 1.5em; font-weight: 600 }}
</style>
<main>
{body}
</main>
</html>
"""

CASHIER = """<h1>{title}</h1>
<p class="amount">{amount} {currency}</p>
<p class="small">Order {order}</p>
{deadline}
<p class="late" id="late" hidden>The time to pay is over. What you pay now is taken, and paid back to you.</p>
<div class="buttons"><button value="SUCCESS"{disabled}>Pay</button><button value="FAILED"{disabled}>Let it fail</button></div>
<p id="said" role="status">{said}</p>
<p class="small">This is the cashier of a local stack: its money is made up.</p>
<script>
  const buttons = [...document.querySelectorAll("button")];
  const [said, late] = ["said", "late"].map(id => document.getElementById(id));
  const enable = on => buttons.forEach(button => button.disabled = !on);
  for (const button of buttons) button.onclick = async () => {{
    const comesBack = late.hidden ? "" : " It was too late, so it comes back to you.";
    enable(false);
    said.textContent = "Working…";
    try {{
      const answer = await fetch("", {{method: "POST", body: JSON.stringify({{outcome: button.value}})}});
      if (!answer.ok) throw new Error(answer.status);
      const {{notified}} = await answer.json();
      if (button.value === "FAILED") {{
        said.textContent = "The payment failed and nothing was taken. You can try again.";
        enable(true);
      }} else {{
        said.textContent = (notified ? "Paid. The shop knows; you can close this page." : "Paid, but the shop does not answer. Look at your order later.") + comesBack;
      }}
    }} catch {{
      said.textContent = "The cashier does not answer. Try again: an order is paid once.";
      enable(true);
    }}
  }};
  const deadline = document.querySelector("time");
  if (deadline) {{
    const end = new Date(deadline.dateTime);
    deadline.textContent = end.toLocaleString();
    const look = () => late.hidden = new Date() < end || {paid};
    look();
    setInterval(look, 1000);
  }}
</script>"""


class Refusal(Exception):
    """What is answered instead."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def whole(value: object, least: int, most: int = 2**53 - 1) -> bool:
    return type(value) is int and least <= value <= most


def matches(form: re.Pattern) -> object:
    return lambda value: isinstance(value, str) and form.fullmatch(value) is not None


def members(document: object, required: dict, optional: dict) -> dict:
    """The document, if it has these members and no others."""
    known = {**required, **optional}
    if not isinstance(document, dict) or not required.keys() <= document.keys() <= known.keys():
        raise Refusal(400, f"members are {', '.join(required)}" + (f" and perhaps {', '.join(optional)}" if optional else ""))
    for name, value in document.items():
        if not known[name](value):
            raise Refusal(400, f"{name} is malformed")
    return document


AMOUNT = {"amount": lambda value: whole(value, 1), "currency": matches(CURRENCY)}
TEXT = lambda value: isinstance(value, str)  # noqa: E731
PAYMENT = (
    {"merchantId": matches(ID), "orderNo": matches(ID), "title": TEXT, **AMOUNT, "notifyUrl": matches(NOTIFY_URL)},
    {"expiresAt": TEXT},
)
REFUND = ({"merchantId": matches(ID), "transactionId": matches(ID), **AMOUNT}, {})
PAYING = (
    {"outcome": lambda value: value in ("SUCCESS", "FAILED")},
    {
        "copies": lambda value: whole(value, 1, MAX_COPIES),
        "delayMs": lambda value: whole(value, 0, MAX_DELAY_MS),
        "amount": AMOUNT["amount"],
        "merchantId": matches(ID),
        "orderNo": matches(ID),
        "transactionId": matches(ID),
    },
)


def major(amount: int, currency: str) -> str:
    """Minor units as people write them."""
    decimals = DECIMALS.get(currency, 2)
    whole_units, rest = divmod(amount, 10**decimals)
    return f"{whole_units:,}" + (f".{rest:0{decimals}}" if decimals else "")


class Provider:
    """Prepared payments, and the ledger. One lock guards both; nothing waits for the network while it is held."""

    def __init__(self, port: int, merchant_id: str, key: bytes, ledger: str):
        self.url = f"http://127.0.0.1:{port}"
        self.merchant_id = merchant_id
        self.key = key
        self.lock = threading.Lock()
        self.prepared: dict[str, dict] = {}
        self.by_order: dict[str, str] = {}
        self.payments: dict[str, dict] = {}
        self.file = open(ledger, "w", encoding="utf-8", buffering=1)  # closed with the process
        # the shop is on this machine: no proxy of the developer's is asked
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def sign(self, timestamp: str, body: bytes) -> str:
        return hmac.new(self.key, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()

    def authenticate(self, headers, body: bytes) -> None:
        merchant, timestamp, signature = (headers.get(f"x-pay-{name}") or "" for name in ("merchant", "timestamp", "signature"))
        known = merchant == self.merchant_id and hmac.compare_digest(signature.encode(), self.sign(timestamp, body).encode())
        if not known or not timestamp.isdecimal() or abs(int(timestamp) - time.time()) > MAX_SKEW_SECS:
            raise Refusal(401, "not signed by a merchant of ours, just now")

    def prepare(self, wanted: dict) -> dict:
        self.same_merchant(wanted)
        with self.lock:
            prepay_id = self.by_order.get(wanted["orderNo"])
            if prepay_id is None:
                prepay_id = f"pp{secrets.token_hex(12)}"
                self.by_order[wanted["orderNo"]] = prepay_id
                # the transaction of the cashier's page: a try that failed and the one that succeeds after it are the same
                self.prepared[prepay_id] = {**wanted, "transactionId": f"tx{secrets.token_hex(12)}"}
                self.note("prepared", prepayId=prepay_id, **wanted)
            known = self.prepared[prepay_id]
            if (known["amount"], known["currency"]) != (wanted["amount"], wanted["currency"]):
                raise Refusal(409, "the order was prepared with another amount")
        return {"prepayId": prepay_id, "payUrl": f"{self.url}/pay/{prepay_id}"}

    def refund(self, wanted: dict) -> dict:
        self.same_merchant(wanted)
        with self.lock:
            payment = self.payments.get(wanted["transactionId"])
            if payment is None:
                raise Refusal(404, "no such transaction")
            if wanted["currency"] != payment["currency"] or wanted["amount"] > payment["amount"]:
                raise Refusal(409, "more than was paid")
            if payment["refunded"] == 0:
                payment["refunded"] = wanted["amount"]
                self.note("refunded", **wanted)
        return {"refunded": True}

    def ledger(self) -> dict:
        with self.lock:
            payments = [dict(payment) for payment in self.payments.values()]
        sums: dict[str, dict[str, int]] = {"received": {}, "refunded": {}}
        for payment in payments:
            for name, amount in (("received", payment["amount"]), ("refunded", payment["refunded"])):
                sums[name][payment["currency"]] = sums[name].get(payment["currency"], 0) + amount
        return {"payments": payments, **sums}

    def page(self, prepay_id: str) -> str:
        prepared = self.known(prepay_id)
        with self.lock:
            paid = prepared["transactionId"] in self.payments
        expires_at = html.escape(prepared.get("expiresAt", ""))
        shown = {"title": prepared["title"], "currency": prepared["currency"], "order": prepared["orderNo"]}
        body = CASHIER.format(
            **{name: html.escape(text) for name, text in shown.items()},
            amount=major(prepared["amount"], prepared["currency"]),
            deadline=f'<p class="small">Pay before <time datetime="{expires_at}">{expires_at}</time></p>' if expires_at else "",
            disabled=" disabled" if paid else "",
            said="This is paid." if paid else "",
            paid=json.dumps(paid),
        )
        return FRAME.format(title="Cashier", body=body)

    def pay(self, prepay_id: str, wanted: dict) -> dict:
        """Takes the money, if it is to succeed and was not taken before, and gives notice of it."""
        prepared = self.known(prepay_id)
        paid_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        notice = {name: wanted.get(name, prepared[name]) for name in ("transactionId", "merchantId", "orderNo", "amount")}
        notice |= {"currency": prepared["currency"], "status": wanted["outcome"], "paidAt": paid_at}
        if wanted["outcome"] == "SUCCESS":
            taken = {name: notice[name] for name in ("transactionId", "orderNo", "amount", "currency", "paidAt")}
            with self.lock:
                if notice["transactionId"] in self.payments:
                    notice["paidAt"] = self.payments[notice["transactionId"]]["paidAt"]
                else:
                    self.payments[notice["transactionId"]] = {**taken, "refunded": 0}
                    self.note("paid", **taken)
        time.sleep(wanted.get("delayMs", 0) / 1000)
        body = json.dumps(notice).encode()
        copies = wanted.get("copies", 1)
        with ThreadPoolExecutor(copies) as couriers:
            arrived = list(couriers.map(lambda _: self.deliver(prepared["notifyUrl"], body), range(copies)))
        return {"transactionId": notice["transactionId"], "notified": sum(arrived)}

    def deliver(self, url: str, body: bytes) -> bool:
        """Repeats one notice until it is taken; whether it was."""
        pause = FIRST_PAUSE_SECS
        for attempt in range(TRIES):
            if attempt > 0:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECS)
            timestamp = str(int(time.time()))
            headers = {"content-type": "application/json", "x-pay-timestamp": timestamp, "x-pay-signature": self.sign(timestamp, body)}
            try:
                with self.opener.open(urllib.request.Request(url, body, headers), timeout=NOTICE_SECS) as answer:
                    if answer.status == 200 and json.loads(answer.read(MAX_BODY_BYTES)).get("code") == "SUCCESS":
                        return True
            except (OSError, ValueError, AttributeError) as problem:
                print(f"notice to {url}: {problem}", flush=True)
        return False

    def known(self, prepay_id: str) -> dict:
        with self.lock:
            prepared = self.prepared.get(prepay_id)
        if prepared is None:
            raise Refusal(404, "nothing is prepared by this number")
        return prepared

    def same_merchant(self, document: dict) -> None:
        if document["merchantId"] != self.merchant_id:
            raise Refusal(400, "merchantId is not who signed")

    def note(self, what: str, **movement) -> None:
        self.file.write(json.dumps({"what": what, "at": datetime.now(UTC).isoformat(), **movement}) + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # an answer goes out in two small writes
    disable_nagle_algorithm = True
    timeout = 120
    provider: Provider

    def do_GET(self) -> None:
        self.serve(self.get)

    def do_POST(self) -> None:
        self.serve(self.post)

    def get(self) -> tuple[bytes, str]:
        if self.path == "/v1/ledger":
            return document(self.provider.ledger())
        if (prepay_id := self.cashier()) is not None:
            return self.provider.page(prepay_id).encode(), "text/html; charset=utf-8"
        raise Refusal(404, "no such page")

    def post(self) -> tuple[bytes, str]:
        length = self.headers.get("content-length") or ""
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise Refusal(400, f"a body has a length, of at most {MAX_BODY_BYTES} bytes")
        body = self.rfile.read(int(length))
        if self.path in ("/v1/payments", "/v1/refunds"):
            self.provider.authenticate(self.headers, body)
        try:
            wanted = json.loads(body)
        except ValueError as problem:
            raise Refusal(400, "the body is not JSON") from problem
        if self.path == "/v1/payments":
            return document(self.provider.prepare(members(wanted, *PAYMENT)))
        if self.path == "/v1/refunds":
            return document(self.provider.refund(members(wanted, *REFUND)))
        if (prepay_id := self.cashier()) is not None:
            return document(self.provider.pay(prepay_id, members(wanted, *PAYING)))
        raise Refusal(404, "no such route")

    def cashier(self) -> str | None:
        before, _, prepay_id = self.path.rpartition("/")
        return prepay_id if before == "/pay" else None

    def serve(self, answer) -> None:
        try:
            (body, kind), status = answer(), 200
        except Refusal as refusal:
            (body, kind), status = document({"message": str(refusal)}), refusal.status
            if self.command == "GET" and self.cashier() is not None:
                sorry = f'<h1>There is nothing to pay here</h1>\n<p class="small">{html.escape(str(refusal).capitalize())}. Ask the shop for a new link.</p>'
                body, kind = FRAME.format(title="Cashier", body=sorry).encode(), "text/html; charset=utf-8"
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        """The ledger says what happened."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # a crowd pays at once
    request_queue_size = 128


def document(value: dict) -> tuple[bytes, str]:
    return json.dumps(value).encode(), "application/json"


if __name__ == "__main__":
    port = int(os.environ["PORT"])
    Handler.provider = Provider(port, os.environ["MERCHANT_ID"], os.environ["KEY"].encode(), os.environ["LEDGER"])
    Server(("127.0.0.1", port), Handler).serve_forever()
