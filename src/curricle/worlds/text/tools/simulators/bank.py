"""Bank: accounts with whole amounts, bills and cards."""

from collections.abc import Callable, Mapping

from curricle.worlds.text.tools.calls import Call
from curricle.worlds.text.tools.schema import Json, shown, tool
from curricle.worlds.text.tools.simulators.base import Chore, Draw, Question, Refused, Simulator, State, variants

ACCOUNTS = variants("everyday|savings|holiday|household|emergency|business|wedding|rent")
PAYEES = variants("City Power|North Water|Blue Phone|Oak Insurance|Metro Rail|Sun Rent|Alpha Gym|Star TV")
CARDS = variants("silver|gold|student|travel|family|green|metal|virtual")
LEFT = 100


class Bank(Simulator):
    """State: {"accounts": {name: amount}, "bills": [{"id", "payee", "amount", "paid"}], "cards": {name: frozen?}}."""

    name = "bank"
    tools = (
        tool("list_accounts", "List the accounts with their balances.", {}),
        tool("list_bills", "List the bills, paid and open.", {}),
        tool("list_cards", "List the cards and whether they are frozen.", {}),
        tool(
            "transfer",
            "Move money from one account to another.",
            {"from_account": "string", "to_account": "string", "amount": "integer"},
        ),
        tool("pay_bill", "Pay an open bill from an account.", {"bill_id": "integer", "account": "string"}),
        tool("set_frozen", "Freeze a card, or set it free again.", {"card": "string", "frozen": "boolean"}),
    )

    def start(self, draw: Draw) -> State:
        """Two accounts of this side's names, two bills, two cards."""
        bills = [
            {"id": draw.integer(100, 999) + 1000 * i, "payee": payee, "amount": draw.integer(10, 90), "paid": False}
            for i, payee in enumerate(draw.sample(draw.side(PAYEES), 2))
        ]
        accounts = {name: draw.integer(300, 3000) for name in draw.sample(draw.side(ACCOUNTS), 2)}
        return {"accounts": accounts, "bills": bills, "cards": dict.fromkeys(draw.sample(draw.side(CARDS), 2), False)}

    def methods(self) -> Mapping[str, Callable[..., Json]]:
        """The six tools."""
        return {
            "list_accounts": lambda state: state["accounts"],
            "list_bills": lambda state: state["bills"],
            "list_cards": lambda state: state["cards"],
            "transfer": _transfer,
            "pay_bill": _pay,
            "set_frozen": _freeze,
        }

    def chore(self, state: State, draw: Draw) -> Chore:
        """Transfer, pay or freeze; bills and balances have to be looked up."""
        source, target = draw.sample(list(state["accounts"]), 2)
        balance = state["accounts"][source]
        open_bills = [bill for bill in state["bills"] if not bill["paid"]]
        kind = draw.integer(0, 3)
        if kind == 0 and open_bills:
            bill = draw.choice(open_bills)
            request = draw.phrase(
                "pay the bill of {0} from {1}|settle what I owe {0}, from {1}|use {1} to pay {0}|"
                "{0} wants its money: take it from {1}",
                *(bill["payee"], source),
            )
            return Chore(
                request, (Call("list_bills", {}), Call("pay_bill", {"bill_id": bill["id"], "account": source}))
            )
        if kind == 1:
            card, frozen = draw.choice(list(state["cards"].items()))
            freeze = "freeze my {0} card|block the {0} card|put my {0} card on ice|my {0} card was stolen: freeze it"
            free = "unfreeze my {0} card|set my {0} card free|free the {0} card|my {0} card is back: unfreeze it"
            call = Call("set_frozen", {"card": card, "frozen": not frozen})
            return Chore(draw.phrase(free if frozen else freeze, card), (call,))
        if kind == 2 and balance > LEFT:
            request = draw.phrase(
                "leave exactly {2} in {0} and move the rest to {1}|bring {0} down to {2}; the rest goes to {1}|"
                "all of {0} but {2} belongs to {1}|empty {0} into {1} until {2} is left",
                *(source, target, LEFT),
            )
            return Chore(request, (Call("list_accounts", {}), _moving(source, target, balance - LEFT)))
        amount = draw.integer(1, 60)
        request = draw.phrase(
            "transfer {2} from {0} to {1}|move {2} from {0} over to {1}|take {2} off {0} and put it on {1}|"
            "{1} should get {2} out of {0}",
            *(source, target, amount),
        )
        return Chore(request, (_moving(source, target, amount),))

    def question(self, state: State, draw: Draw) -> Question:
        """A balance, or a bill."""
        if draw.integer(0, 1):
            name, amount = draw.choice(list(state["accounts"].items()))
            request = draw.phrase(
                "How much money is in {0}?|What is the balance of my {0} account?|How much do I have in {0}?|"
                "{0}: what amount is left there?",
                name,
            )
            return Question(request, (Call("list_accounts", {}),), str(amount))
        bill = draw.choice(state["bills"])
        request = draw.phrase(
            "How high is the bill of {0}?|What do I owe {0}?|How much does {0} want?|"
            "{0} sent a bill: what is its amount?",
            bill["payee"],
        )
        return Question(request, (Call("list_bills", {}),), str(bill["amount"]))


def _moving(source: str, target: str, amount: int) -> Call:
    return Call("transfer", {"from_account": source, "to_account": target, "amount": amount})


def _take(state: State, account: str, amount: int) -> None:
    if account not in state["accounts"]:
        raise Refused(f"there is no account {shown(account)}")
    if state["accounts"][account] < amount:
        raise Refused(f"{account} has only {state['accounts'][account]}")
    state["accounts"][account] -= amount


def _transfer(state: State, from_account: str, to_account: str, amount: int) -> str:
    if amount < 1 or to_account not in state["accounts"] or from_account == to_account:
        raise Refused("a transfer needs a positive amount and two different accounts")
    _take(state, from_account, amount)
    state["accounts"][to_account] += amount
    return "done"


def _pay(state: State, bill_id: int, account: str) -> str:
    bill = next((one for one in state["bills"] if one["id"] == bill_id and not one["paid"]), None)
    if bill is None:
        raise Refused(f"there is no open bill {bill_id}")
    _take(state, account, bill["amount"])
    bill["paid"] = True
    return "done"


def _freeze(state: State, card: str, frozen: bool) -> str:
    if card not in state["cards"]:
        raise Refused(f"there is no card {shown(card)}")
    state["cards"][card] = frozen
    return "done"
