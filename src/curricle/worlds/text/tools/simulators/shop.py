"""Shop: products with prices and stock, a cart and orders."""

from collections.abc import Callable, Mapping

from curricle.worlds.text.tools.calls import Call
from curricle.worlds.text.tools.schema import Json, shown, tool
from curricle.worlds.text.tools.simulators.base import Chore, Draw, Question, Refused, Simulator, State, variants

THINGS = variants(
    "teapot|lamp|backpack|helmet|blanket|kettle|notebook|umbrella|scarf|mirror|tent|drum|clock|vase|rug|puzzle"
)
COLOURS = variants("red|blue|green|black|white|yellow|grey|purple")
STREETS = variants("Mill Lane|Park Road|Harbour Street|Station Square|Hill View|Garden Row|Old Dock|Elm Way")


class Shop(Simulator):
    """State: {"products": {id: {"name", "price", "stock"}}, "cart": {id: quantity}, "orders": [...]}."""

    name = "shop"
    tools = (
        tool(
            "search_products", "Find products whose name contains a text; an empty text finds all.", {"text": "string"}
        ),
        tool("add_to_cart", "Put a product into the cart.", {"product_id": "string", "quantity": "integer"}),
        tool("remove_from_cart", "Take a product out of the cart.", {"product_id": "string"}),
        tool("view_cart", "Show the cart.", {}),
        tool("check_out", "Order what is in the cart.", {"address": "string"}),
    )

    def start(self, draw: Draw) -> State:
        """Five products, one of them in the cart."""
        names = [f"{draw.name(COLOURS)} {thing}" for thing in draw.sample(draw.side(THINGS) * 2, 5)]
        products = {
            f"{name[0]}{draw.integer(10, 99)}{i}": {
                "name": name,
                "price": draw.integer(3, 90),
                "stock": draw.integer(4, 60),
            }
            for i, name in enumerate(dict.fromkeys(names))
        }
        return {"products": products, "cart": {draw.choice(list(products)): 1}, "orders": []}

    def methods(self) -> Mapping[str, Callable[..., Json]]:
        """The five tools."""
        return {
            "search_products": lambda state, text: {
                number: product for number, product in state["products"].items() if text.lower() in product["name"]
            },
            "add_to_cart": _add,
            "remove_from_cart": _remove,
            "view_cart": lambda state: state["cart"],
            "check_out": _order,
        }

    def chore(self, state: State, draw: Draw) -> Chore:
        """Add, remove or order; the numbers of products have to be looked up."""
        absent = [number for number in state["products"] if number not in state["cart"]]
        kind = draw.integer(0, 3)
        if kind == 0 and state["cart"]:
            number = draw.choice(list(state["cart"]))
            request = draw.phrase(
                "take the {0} out of my cart|remove the {0} from the cart|I do not want the {0} in my cart|"
                "my cart should be without the {0}",
                _name(state, number),
            )
            lookups = (Call("view_cart", {}), _search(state, number))
            return Chore(request, (*lookups, Call("remove_from_cart", {"product_id": number})))
        if (kind == 1 or not absent) and state["cart"]:
            address = f"{draw.integer(1, 99)} {draw.name(STREETS)}"
            request = draw.phrase(
                "order what is in my cart to {0}|check out, to {0}|send the things in my cart to {0}|"
                "buy the cart; deliver to {0}",
                address,
            )
            return Chore(request, (Call("check_out", {"address": address}),))
        number = draw.choice(absent or list(state["products"]))
        quantity = draw.integer(1, 3)
        request = draw.phrase(
            "put {1} of the {0} into my cart|add the {0} to my cart, quantity {1}|I want {1} of the {0} in my cart|"
            "my cart needs {1} of the {0}",
            *(_name(state, number), quantity),
        )
        call = Call("add_to_cart", {"product_id": number, "quantity": quantity})
        return Chore(request, (_search(state, number), call))

    def question(self, state: State, draw: Draw) -> Question:
        """A price, or the stock."""
        number = draw.choice(list(state["products"]))
        kind = draw.choice(("price", "stock"))
        price = "What does the {0} cost?|How much is the {0}?|What is the price of the {0}?|{0}: its price?"
        stock = (
            "How many of the {0} are there?|What is the stock of the {0}?|How many of the {0} has the shop?|"
            "{0}: how many are left?"
        )
        request = draw.phrase(price if kind == "price" else stock, _name(state, number))
        return Question(request, (_search(state, number),), str(state["products"][number][kind]))


def _name(state: State, number: str) -> str:
    return str(state["products"][number]["name"])


def _search(state: State, number: str) -> Call:
    return Call("search_products", {"text": _name(state, number)})


def _add(state: State, product_id: str, quantity: int) -> str:
    if product_id not in state["products"]:
        raise Refused(f"there is no product {shown(product_id)}")
    wanted = state["cart"].get(product_id, 0) + quantity
    stock = state["products"][product_id]["stock"]
    if quantity < 1 or wanted > stock:
        raise Refused(f"a quantity from 1 to {stock} can be in the cart")
    state["cart"][product_id] = wanted
    return "done"


def _remove(state: State, product_id: str) -> str:
    if product_id not in state["cart"]:
        raise Refused(f"{shown(product_id)} is not in the cart")
    del state["cart"][product_id]
    return "done"


def _order(state: State, address: str) -> str:
    if not state["cart"]:
        raise Refused("the cart is empty")
    for number, quantity in state["cart"].items():
        state["products"][number]["stock"] -= quantity
    state["orders"].append({"products": state["cart"], "address": address})
    state["cart"] = {}
    return "done"
